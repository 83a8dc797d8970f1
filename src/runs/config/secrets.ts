/**
 * Keeps secrets out of saved files and logs: values whose name says so, values of well-known environment variables, and
 * credentials inside URLs.
 */
const secretWords =
  /(^|_)(token|api_?key|apikey|password|passwd|passphrase|secret|credentials?|access_key|private_key)$/;
/** `eos_token` and the like are vocabulary, not credentials. */
const vocabulary = /(^|_)(eos|bos|pad|unk|sep|cls|mask|stop|end|step|special|think|image|per)_token$/;
const environmentNames = /(TOKEN|API_?KEY|PASSWORD|SECRET)$/;
/** A shorter value is more likely an ordinary word than a credential. */
const shortestSecret = 8;

export const redacted = '[redacted]';

/** Whether a field's snake_case name says that its value is a secret. */
export function isSecretName(name: string): boolean {
  const lower = name.toLowerCase();
  return secretWords.test(lower) && !vocabulary.test(lower);
}

/** Removes every known secret from a text: credentials from the environment, tokens, passwords in URLs. */
export function redact(text: string, environment: NodeJS.ProcessEnv = process.env): string {
  let clean = text;
  for (const [name, value] of Object.entries(environment)) {
    if (value && value.length >= shortestSecret && environmentNames.test(name))
      clean = clean.replaceAll(value, redacted);
  }
  return clean
    .replace(/\bhf_[A-Za-z0-9]{16,}\b/g, redacted)
    .replace(/(\b[a-z][a-z0-9+.-]*:\/\/[^\s:/@]+):[^\s@/]+@/gi, `$1:${redacted}@`);
}

/** A copy of a JSON-like value without secrets, at any depth. */
export function withoutSecrets(value: unknown, environment: NodeJS.ProcessEnv = process.env): unknown {
  if (typeof value === 'string') return redact(value, environment);
  if (Array.isArray(value)) return value.map((item) => withoutSecrets(item, environment));
  if (value === null || typeof value !== 'object') return value;
  const clean: Record<string, unknown> = {};
  for (const [name, item] of Object.entries(value)) {
    if (!isSecretName(name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`))) {
      clean[name] = withoutSecrets(item, environment);
    }
  }
  return clean;
}
