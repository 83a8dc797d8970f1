/**
 * Keeps secrets out of saved files and logs: values whose names suggest it, values of well-known environment variables,
 * and credentials inside URLs.
 */
const secretWords =
  /(^|_)(token|api_?key|apikey|password|passwd|passphrase|secret|credentials?|access_key|private_key)$/;
/** `eos_token` and the like are vocabulary, not credentials. */
const vocabulary = /(^|_)(eos|bos|pad|unk|sep|cls|mask|stop|end|step|special|think|image|per)_token$/;
const environmentNames = /(TOKEN|API_?KEY|PASSWORD|SECRET)$/;
/** A shorter value is more likely an ordinary word than a credential. */
const shortestSecret = 8;

export const redacted = '[redacted]';

/** Whether a field's snake_case name suggests a secret value. */
export function isSecretName(name: string): boolean {
  const lower = name.toLowerCase();
  return secretWords.test(lower) && !vocabulary.test(lower);
}

/** Removes every known secret from a text: credentials from the environment, tokens, passwords in URLs. */
export function redact(text: string, environment: NodeJS.ProcessEnv = process.env): string {
  return withoutThese(secretsOf(environment), text);
}

function secretsOf(environment: NodeJS.ProcessEnv): string[] {
  return Object.entries(environment).flatMap(([name, value]) =>
    value && value.length >= shortestSecret && environmentNames.test(name) ? [value] : [],
  );
}

function withoutThese(secrets: readonly string[], text: string): string {
  return secrets
    .reduce((clean, secret) => clean.replaceAll(secret, redacted), text)
    .replace(/\bhf_[A-Za-z0-9]{16,}\b/g, redacted)
    .replace(/(\b[a-z][a-z0-9+.-]*:\/\/[^\s:/@]+):[^\s@/]+@/gi, `$1:${redacted}@`);
}

/** A copy of a JSON-like value without secrets, at any depth. */
export function withoutSecrets(value: unknown, environment: NodeJS.ProcessEnv = process.env): unknown {
  const secrets = secretsOf(environment);
  const cleaned = (value: unknown): unknown => {
    if (typeof value === 'string') return withoutThese(secrets, value);
    if (Array.isArray(value)) return value.map(cleaned);
    if (value === null || typeof value !== 'object') return value;
    const clean: Record<string, unknown> = {};
    for (const [name, item] of Object.entries(value))
      if (!isSecretName(name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`))) clean[name] = cleaned(item);
    return clean;
  };
  return cleaned(value);
}
