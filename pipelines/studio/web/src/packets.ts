/** The packets of a sound in an Ogg or WebM file. Files are hostile: what is malformed ends the sound or is an error. */

export interface Track {
  /** The codec as WebCodecs names it, and what its decoder needs to begin. */
  codec: "opus" | "vorbis";
  description: Uint8Array;
  rate: number;
  channels: number;
  packets: () => Generator<Uint8Array>;
}

const text = (bytes: Uint8Array, from: number, length: number) => String.fromCharCode(...bytes.subarray(from, from + length));

/** The sound of a file; `undefined` if it is one that the server decodes, as Vorbis in Ogg. */
export function trackOf(bytes: Uint8Array): Track | undefined {
  if (text(bytes, 0, 4) === "OggS") return oggOpus(bytes);
  if (bytes[0] === 0x1a && bytes[1] === 0x45) return webm(bytes);
  throw new Error("it is neither an Ogg nor a WebM file");
}

/** Opus in Ogg: a head and comments come before the sound (RFC 7845). */
function oggOpus(bytes: Uint8Array): Track | undefined {
  const head = oggPackets(bytes).next().value;
  if (!head) throw new Error("the file is cut off");
  if (text(head, 0, 8) !== "OpusHead") return undefined;
  function* packets() {
    let before = 2;
    for (const packet of oggPackets(bytes)) if (before-- <= 0) yield packet;
  }
  return { codec: "opus", description: head, rate: 48_000, channels: head[9] ?? 0, packets };
}

/** The packets of the first stream of an Ogg file (RFC 3533), up to where it is damaged. Empty ones are left out. */
function* oggPackets(bytes: Uint8Array): Generator<Uint8Array> {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let serial: number | undefined;
  let parts: Uint8Array[] = [];
  for (let page = 0; page + 27 <= bytes.length && text(bytes, page, 4) === "OggS"; ) {
    const lengths = bytes.subarray(page + 27, page + 27 + (bytes[page + 26] ?? 0));
    let at = page + 27 + lengths.length;
    const isOurs = view.getUint32(page + 14, true) === (serial ??= view.getUint32(page + 14, true));
    for (const length of lengths) {
      // The file is cut off.
      if (at + length > bytes.length) return;
      if (isOurs && length) parts.push(bytes.subarray(at, at + length));
      at += length;
      if (!isOurs || length === 255) continue;
      if (parts.length) yield joined(parts);
      parts = [];
    }
    page = at;
  }
}

/** One packet of its parts, most often of one. */
function joined(parts: Uint8Array[]): Uint8Array {
  if (parts.length === 1 && parts[0]) return parts[0];
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** Elements of WebM by their ids; the first ones hold others, and are read as if these stood side by side. */
const [SEGMENT, TRACKS, TRACK, AUDIO, CLUSTER, GROUP] = [0x18538067, 0x1654ae6b, 0xae, 0xe1, 0x1f43b675, 0xa0];
const [NUMBER, CODEC, PRIVATE, RATE, CHANNELS] = [0xd7, 0x86, 0x63a2, 0xb5, 0x9f];
const [BLOCK, SIMPLE_BLOCK] = [0xa1, 0xa3];
const HOLDERS = [SEGMENT, TRACKS, TRACK, AUDIO, CLUSTER, GROUP];
const CODECS = new Map<string, Track["codec"]>([["A_OPUS", "opus"], ["A_VORBIS", "vorbis"]]);

/** The first track of a WebM file with a codec that is known (RFC 9559). */
function webm(bytes: Uint8Array): Track {
  let codec: Track["codec"] | undefined;
  let description: Uint8Array = new Uint8Array();
  let [number, rate, channels] = [0, 48_000, 1];
  for (const [id, content] of elements(bytes)) {
    // The next track or the sound begins.
    if ((id === TRACK && codec) || id === CLUSTER) break;
    if (id === TRACK) [description, number, rate, channels] = [new Uint8Array(), 0, 48_000, 1];
    else if (id === NUMBER) number = integer(content);
    else if (id === CODEC) codec = CODECS.get(text(content, 0, 16));
    else if (id === PRIVATE) description = content;
    else if (id === RATE) rate = float(content);
    else if (id === CHANNELS) channels = integer(content);
  }
  if (!codec) throw new Error("the file has no sound of a known codec");
  function* packets() {
    for (const [id, content] of elements(bytes)) {
      if (id !== BLOCK && id !== SIMPLE_BLOCK) continue;
      const [track, length] = variable(content, 0);
      if (track !== number || content.length <= length + 3) continue;
      if ((content[length + 2] ?? 0) & 0x06) throw new Error("its packets are laced");
      yield content.subarray(length + 3);
    }
  }
  return { codec, description, rate, channels, packets };
}

/** The elements of a WebM file, and their content; those that hold others have none. */
function* elements(bytes: Uint8Array): Generator<[number, Uint8Array]> {
  for (let at = 0; at < bytes.length; ) {
    const [id, idLength] = variable(bytes, at, true);
    const [size, sizeLength] = variable(bytes, at + idLength);
    if (!idLength || !sizeLength) return;
    const start = at + idLength + sizeLength;
    const isHolder = HOLDERS.includes(id);
    at = isHolder ? start : start + size;
    yield [id, bytes.subarray(start, at)];
  }
}

/** A number of variable length, with or without the bit that says how long it is, and its length; 0 if there is none. */
function variable(bytes: Uint8Array, at: number, keep = false): [number, number] {
  const first = bytes[at] ?? 0;
  const length = Math.clz32(first) - 23;
  if (!first || at + length > bytes.length) return [0, 0];
  let value = keep ? first : first & (0xff >> length);
  for (let next = 1; next < length; next++) value = value * 256 + (bytes[at + next] ?? 0);
  return [value, length];
}

const integer = (bytes: Uint8Array) => bytes.reduce((value, byte) => value * 256 + byte, 0);

function float(bytes: Uint8Array): number {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return bytes.length === 4 ? view.getFloat32(0) : bytes.length === 8 ? view.getFloat64(0) : 0;
}
