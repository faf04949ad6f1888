/**
 * Waveforms of sounds that only the browser can decode. A worker does it, which is ended when the page is left or it takes
 * too long, so that no file keeps a page busy.
 */

import type { SoundView } from "./types";

/** Larger files are not read, bytes. */
const MAX_FILE = 64 << 20;
/** Time after which a file is given up, ms. */
const MAX_TIME = 60_000;

/** What the worker sends. The problem is empty if the server decodes such a sound, and has said why it did not. */
export type Decoded = { sound: SoundView } | { problem: string };

/** Whether a sound without a waveform of the server may have one of the browser. */
export const isDecodable = (name: string, size: number) => size <= MAX_FILE && /\.(og[ga]|opus|web[ma])$/i.test(name);

/** One file at a time is read and decoded. */
let last: Promise<unknown> = Promise.resolve();

/** The waveform of the file at an address of the studio, unless the page is left before. */
export function decoded(address: string, left: AbortSignal): Promise<SoundView> {
  const next = last.then(() => decode(address, left));
  last = next.catch(() => {});
  return next;
}

async function decode(address: string, left: AbortSignal): Promise<SoundView> {
  left.throwIfAborted();
  const worker = new Worker(new URL("./decoder.ts", import.meta.url), { type: "module" });
  const stop = AbortSignal.any([left, AbortSignal.timeout(MAX_TIME)]);
  try {
    const answer = await new Promise<Decoded>((done, failed) => {
      stop.addEventListener("abort", () => failed(new Error("it takes longer than a minute")));
      worker.onerror = () => failed(new Error("the decoder failed"));
      worker.onmessage = (event: MessageEvent<Decoded>) => done(event.data);
      worker.postMessage(address);
    });
    if ("problem" in answer) throw new Error(answer.problem);
    return answer.sound;
  } finally {
    worker.terminate();
  }
}
