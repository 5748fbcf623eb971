// One picture of the conversation over the whole page. The arrows lead to the others. The browser's dialog holds the focus, gives
// it back, and closes with Escape.
import { useEffect, useRef, useState } from "preact/hooks";
import { said } from "./api.ts";
import { visible } from "./format.ts";
import { gallery, type Gallery } from "./pictures.ts";
import { Icon, Text } from "./pieces.tsx";
import "./lightbox.css";

export function Lightbox({ of: { pictures, at } }: { of: Gallery }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const picture = pictures[at];
  const [shown, setShown] = useState<{ at: number; url?: string; problem?: string }>({ at: -1 });
  useEffect(() => dialog.current?.showModal(), []);
  useEffect(() => {
    let current = true;
    picture?.url().then(
      (url) => current && setShown({ at, url }),
      (error: unknown) => current && setShown({ at, problem: said(error) }),
    );
    return () => void (current = false);
  }, [picture]);
  const move = (to: number) => (gallery.value = { pictures, at: Math.min(pictures.length - 1, Math.max(0, to)) });
  const pressed = (event: KeyboardEvent) => {
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: pictures.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    move(to);
  };
  const broken = () => setShown({ at, problem: "This picture cannot be shown." });
  const { url, problem } = shown.at === at ? shown : { url: undefined, problem: undefined };
  const name = picture?.name ?? "";
  return (
    <dialog
      ref={dialog}
      class="lightbox"
      aria-label="Picture"
      onKeyDown={pressed}
      onClose={() => (gallery.value = undefined)}
      onClick={(event) => event.target instanceof Element && event.target.matches("dialog, .lightbox-picture") && dialog.current?.close()}
    >
      <header class="lightbox-head">
        <p role="status">
          <strong>
            <Text of={name || "Unnamed picture"} length={120} />
          </strong>
          {pictures.length > 1 && <span class="quiet">{` ${at + 1} of ${pictures.length}`}</span>}
        </p>
        {picture?.save !== undefined && (
          <button class="plain round" aria-label="Download" title="Download" onClick={picture.save}>
            <Icon name="download" />
          </button>
        )}
        <button class="plain round" aria-label="Close" title="Close" autofocus onClick={() => dialog.current?.close()}>
          <Icon name="close" />
        </button>
      </header>
      <div class="lightbox-picture" aria-busy={url === undefined && problem === undefined}>
        {url !== undefined && <img src={url} alt={name ? `Image ${visible(name)}` : "Image without a name"} onError={broken} />}
        {problem !== undefined && (
          <p class="problem" role="alert">
            <Text of={problem} />
          </p>
        )}
      </div>
      {pictures.length > 1 && (
        <div class="lightbox-arrows">
          <button class="round" aria-label="Previous picture" disabled={at === 0} onClick={() => move(at - 1)}>
            <Icon name="back" />
          </button>
          <button class="round" aria-label="Next picture" disabled={at === pictures.length - 1} onClick={() => move(at + 1)}>
            <Icon name="next" />
          </button>
        </div>
      )}
    </dialog>
  );
}
