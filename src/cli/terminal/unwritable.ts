const reasons: Record<string, string> = {
  EACCES: 'permission denied',
  EPERM: 'permission denied',
  EROFS: 'the disk is read-only',
  ENOSPC: 'the disk is full',
  EDQUOT: 'the disk is full',
  ENOENT: 'nothing can be made there',
};

/** Why something cannot be written, in words. */
export const whyUnwritable = (error: unknown) => {
  const { code = '', message } = error as NodeJS.ErrnoException;
  return reasons[code] ?? message;
};
