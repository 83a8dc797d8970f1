export async function writeDocument(): Promise<void> {}
