/**
 * Decodes a sound with the decoder of the browser, as a worker. It does so packet by packet: no more than a moment of the
 * sound is in memory, and one that is too long is given up, however small its file is.
 */

import type { Decoded } from "./decoded";
import { trackOf } from "./packets";
import type { SoundView } from "./types";

/** Maximum number of samples over all channels, as on the server: one hour of stereo at 48 kHz. */
const MAX_SAMPLES = 3600 * 2 * 48_000;
/** Packets that the decoder may have before it. */
const QUEUE = 64;
/** Maximum number of parts of a waveform; an even number. */
const MAX_PEAKS = 1000;

addEventListener("message", async (event: MessageEvent<string>) => {
  let answer: Decoded;
  try {
    answer = { sound: await read(event.data) };
  } catch (error) {
    answer = { problem: (error as Error).message };
  }
  postMessage(answer);
});

async function read(address: string): Promise<SoundView> {
  if (!self.isSecureContext) throw new Error("browsers decode only over https or from this machine");
  if (!("AudioDecoder" in self)) throw new Error("this browser has no decoder for pages");
  const answer = await fetch(address);
  if (!answer.ok) throw new Error("the file cannot be read");
  const track = trackOf(new Uint8Array(await answer.arrayBuffer()));
  if (!track) throw new Error("");
  const { packets, codec, description, rate, channels } = track;
  return decode(packets(), { codec, description, sampleRate: rate, numberOfChannels: channels });
}

async function decode(packets: Iterable<Uint8Array>, config: AudioDecoderConfig): Promise<SoundView> {
  const drawing = new Drawing();
  let fail: (error: unknown) => void = () => {};
  const failure = new Promise<never>((_, reject) => (fail = reject));
  // It may fail while nothing waits for it.
  failure.catch(() => {});
  const take = (data: AudioData) => {
    try {
      drawing.take(data);
    } catch (error) {
      fail(error);
    }
    data.close();
  };
  const decoder = new AudioDecoder({ output: take, error: fail });
  decoder.configure(config);
  let timestamp = 0;
  for (const data of packets) {
    decoder.decode(new EncodedAudioChunk({ type: "key", timestamp, data }));
    timestamp += 20_000;
    if (decoder.decodeQueueSize < QUEUE) continue;
    await Promise.race([failure, new Promise((free) => decoder.addEventListener("dequeue", free, { once: true }))]);
  }
  await Promise.race([failure, decoder.flush()]);
  return drawing.end();
}

/** Peaks of a sound whose length is not known: two neighbors become one when there are too many. */
class Drawing {
  private peaks: number[] = [];
  /** Frames of a part, those of the part that is not complete, and the loudest sample of these. */
  private length = 64;
  private taken = 0;
  private loudest = 0;
  private frames = 0;
  private rate = 0;
  private channels = 0;

  take(data: AudioData) {
    [this.rate, this.channels] = [data.sampleRate, data.numberOfChannels];
    this.frames += data.numberOfFrames;
    if (this.frames * this.channels > MAX_SAMPLES) throw new Error("too long: it has more than 345.6 million samples (an hour of stereo at 48 kHz)");
    const planes = Array.from({ length: this.channels }, (_, planeIndex) => {
      const plane = new Float32Array(data.numberOfFrames);
      data.copyTo(plane, { planeIndex, format: "f32-planar" });
      return plane;
    });
    for (let at = 0; at < data.numberOfFrames; at++) {
      for (const plane of planes) this.loudest = Math.max(this.loudest, Math.min(1, Math.abs(plane[at] ?? 0) || 0));
      if (++this.taken === this.length) this.push();
    }
  }

  private push() {
    this.peaks.push(this.loudest);
    [this.taken, this.loudest] = [0, 0];
    if (this.peaks.length < MAX_PEAKS) return;
    this.peaks = Array.from({ length: MAX_PEAKS / 2 }, (_, at) => Math.max(this.peaks[2 * at] ?? 0, this.peaks[2 * at + 1] ?? 0));
    this.length *= 2;
  }

  end(): SoundView {
    if (!this.frames) throw new Error("it has no samples");
    if (this.taken) this.push();
    return { peaks: this.peaks, seconds: this.frames / this.rate, rate: this.rate, channels: this.channels };
  }
}
