/** Decodes tokens to text while they arrive. */
export interface TextStream {
  /** The text that is certain after this token; empty while a character is incomplete. */
  push(id: number): string;
  /** The text still held back at the end of the sequence. */
  flush(): string;
}

const INCOMPLETE = '\ufffd';
/**
 * A UTF-8 character has at most four bytes, so text that is still incomplete after four tokens is invalid, except at
 * its end.
 */
const PATIENCE_TOKENS = 4;
const WINDOW_TOKENS = 8;

export function textStream(decode: (ids: number[]) => string): TextStream {
  let window: number[] = [];
  let emitted = 0;
  let held = 0;

  const emit = (text: string, end: number): string => {
    const fresh = text.slice(emitted, end);
    emitted = Math.max(emitted, end);
    return fresh;
  };

  return {
    push(id) {
      window.push(id);
      held++;
      const text = decode(window);
      if (text.endsWith(INCOMPLETE)) {
        return held <= PATIENCE_TOKENS ? '' : emit(text, text.length - 1);
      }
      const fresh = emit(text, text.length);
      if (window.length > WINDOW_TOKENS) {
        // The kept tokens must include a visible one, because a decoder strips the first visible space.
        const recent = window.slice(-Math.max(held, 2));
        const recentText = decode(recent);
        if (recentText !== '' && text.endsWith(recentText)) {
          window = recent;
          emitted = recentText.length;
        }
      }
      held = 0;
      return fresh;
    },
    flush() {
      const text = decode(window);
      held = 0;
      return emit(text, text.length);
    },
  };
}

/** A token's bytes and, if they are whole characters, its text. */
export interface TokenText {
  bytes: Uint8Array;
  text: string | undefined;
}

const strict = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

export function tokenText(bytes: Uint8Array): TokenText {
  try {
    return { bytes, text: strict.decode(bytes) };
  } catch {
    return { bytes, text: undefined };
  }
}

/**
 * The same for a decoder in which a token's bytes do not depend on its neighbours (byte-level): no token is decoded
 * twice.
 */
export function byteStream(textOf: (id: number) => TokenText | undefined): TextStream {
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  let mayBeInside = false; // inside a character
  return {
    push(id) {
      const token = textOf(id);
      if (token === undefined) return '';
      if (!mayBeInside && token.text !== undefined) return token.text;
      mayBeInside = token.text === undefined;
      return decoder.decode(token.bytes, { stream: true });
    },
    flush: () => decoder.decode(),
  };
}
