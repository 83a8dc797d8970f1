/** What the system refuses to read or write, in words; its own name a call and no way on. */

const reading = ['open', 'scandir', 'stat', 'lstat', 'access', 'readlink', 'read'];

/** What to say of an error that is the system's word for a missing permission; undefined of any other. */
export function deniedWords(error: unknown): string | undefined {
  const { code, path, syscall = '' } = (error ?? {}) as NodeJS.ErrnoException;
  if ((code !== 'EACCES' && code !== 'EPERM') || path === undefined) return undefined;
  return `${path}: no permission to ${reading.includes(syscall) ? 'read it' : 'write there'}.`;
}
