/** Of the free memory, what each kind of copies of weights may take that make decoding faster; the rest is left to others. */
export const SHARE_OF_COPIES = 1 / 4;
