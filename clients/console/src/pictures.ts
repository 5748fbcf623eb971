// The pictures of a conversation, which the lightbox shows one after the other.
import { signal } from "@preact/signals";

export interface Picture {
  readonly name: string;
  /** The address of the whole picture. */
  readonly url: () => Promise<string>;
  /** Saves the file. Undefined for a picture that is no stored file. */
  readonly save?: () => void;
}

export interface Gallery {
  readonly pictures: readonly Picture[];
  readonly at: number;
}

/** What the lightbox shows. Undefined while it is closed. */
export const gallery = signal<Gallery | undefined>(undefined);
const pictures = new WeakMap<Element, Picture>();
/** A button that opens a picture. */
const OPENER = "[data-picture]";

export const setPicture = (opener: Element, picture: Picture): void => void pictures.set(opener, picture);

/** Open the lightbox with the picture of this button, beside those of the same conversation or draft. */
export function openPicture(opener: Element): void {
  const all = [...(opener.closest(".scroller, .chips")?.querySelectorAll(OPENER) ?? [opener])];
  const known = all.filter((one) => pictures.has(one));
  gallery.value = { pictures: known.map((one) => pictures.get(one) as Picture), at: known.indexOf(opener) };
}
