/** The size of a picture that is in the page's data, so that its place is kept before it is decoded. */

const PNG = "\x89PNG\r\n\x1a\n";

/** Width and height in pixels; `undefined` where its beginning does not say. */
export function pictureSize(base64: string): { width: number; height: number } | undefined {
  let head: string;
  try {
    // The first 24 bytes.
    head = atob(base64.slice(0, 32));
  } catch {
    return undefined;
  }
  const number = (at: number, bytes: number[]) => bytes.reduce((sum, byte) => sum * 256 + head.charCodeAt(at + byte), 0);
  let size: [number, number];
  if (head.startsWith(PNG)) size = [number(16, [0, 1, 2, 3]), number(20, [0, 1, 2, 3])];
  else if (head.startsWith("GIF8")) size = [number(6, [1, 0]), number(8, [1, 0])];
  else return undefined;
  const [width, height] = size;
  return width > 0 && height > 0 ? { width, height } : undefined;
}
