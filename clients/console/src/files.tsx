// The files of a message or a tool result in a conversation. Images are loaded when they come near the screen.
import { useEffect, useRef, useState } from "preact/hooks";
import type { FilePart } from "../../js/src/index.ts";
import { said, service } from "./api.ts";
import { bytes, count, visible } from "./format.ts";
import { openPicture, setPicture } from "./pictures.ts";
import { Icon, Text } from "./pieces.tsx";

/** An address is asked for again so long before it expires. */
const EARLY_S = 30;
const AHEAD = "400px 0px";
const WIDEST_PX = 420;
const HIGHEST_PX = 320;
/** Images that every browser shows. */
const SHOWN = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);

const addresses = new Map<string, { url: string; expires_at: number }>();

async function addressOf(session: string, file: FilePart, fresh = false): Promise<string> {
  const key = `${session} ${file.sha256} ${file.name}`;
  const known = addresses.get(key);
  if (!fresh && known !== undefined && known.expires_at - EARLY_S > Date.now() / 1000) return known.url;
  const found = await service().fileUrl(session, file);
  if (!/^https?:\/\//.test(found.url)) throw new Error("the service gives no address of this file");
  addresses.set(key, found);
  return found.url;
}

/** `session`: the session that holds the files. */
export function Files({ of, session, label }: { of: readonly FilePart[]; session: string; label: string }) {
  if (of.length === 0) return null;
  return (
    <ul class="files" aria-label={label}>
      {of.map((file, n) => (
        <FileView key={`${n} ${file.sha256 ?? file.url}`} file={file} session={session} />
      ))}
    </ul>
  );
}

function FileView({ file, session }: { file: FilePart; session: string }) {
  const [problem, setProblem] = useState("");
  const [broken, setBroken] = useState(false);
  const previewed = file.sha256 != null && SHOWN.has(file.media_type) && !broken;
  const download = () => {
    setProblem("");
    addressOf(session, file, true).then(save, (error: unknown) => setProblem(said(error)));
  };
  return (
    <li class={previewed ? "attachment image" : "attachment"}>
      {previewed && <Preview file={file} session={session} save={download} onBroken={() => setBroken(true)} onProblem={setProblem} />}
      <div class="file">
        {!previewed && <Icon name={file.kind === "image" ? "image" : "file"} />}
        <span class="file-about">
          <span class="file-name" title={visible(nameOf(file))}>
            <Text of={nameOf(file)} length={120} />
          </span>
          <small>{about(file)}</small>
        </span>
        {file.sha256 != null ? (
          <button type="button" class="plain round" aria-label={`Download ${visible(nameOf(file))}`} title="Download" onClick={download}>
            <Icon name="download" />
          </button>
        ) : (
          file.url?.startsWith("https://") && (
            <a class="button plain round" href={file.url} target="_blank" rel="noopener noreferrer" aria-label={`Open ${visible(nameOf(file))}`} title="Open">
              <Icon name="enter" />
            </a>
          )
        )}
      </div>
      {problem !== "" && (
        <p class="file-problem" role="alert">
          <Text of={problem} />
        </p>
      )}
    </li>
  );
}

interface PreviewGiven {
  file: FilePart;
  session: string;
  save: () => void;
  onBroken: () => void;
  onProblem: (problem: string) => void;
}

function Preview({ file, session, save, onBroken, onProblem }: PreviewGiven) {
  const [url, setUrl] = useState<string | undefined>(undefined);
  const place = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    const opener = place.current as HTMLElement;
    setPicture(opener, { name: file.name ?? "", url: () => addressOf(session, file), save });
    let gone = false;
    const refused = (error: unknown) => {
      if (gone) return;
      onProblem(said(error));
      onBroken();
    };
    const seen = new IntersectionObserver(
      ([entry]) => {
        if (!entry?.isIntersecting) return;
        seen.disconnect();
        addressOf(session, file).then((found) => !gone && setUrl(found), refused);
      },
      { root: opener.closest(".scroller"), rootMargin: AHEAD },
    );
    seen.observe(opener);
    return () => {
      gone = true;
      seen.disconnect();
    };
  }, [session, file.sha256]);
  return (
    <button
      type="button"
      class="preview"
      ref={place}
      style={frameOf(file)}
      aria-busy={url === undefined}
      aria-label={file.name ? `Enlarge image ${visible(file.name)}` : "Enlarge image without a name"}
      data-picture=""
      onClick={(event) => openPicture(event.currentTarget)}
    >
      {url !== undefined && <img src={url} alt={file.name ? `Image ${visible(file.name)}` : "Image without a name"} onError={onBroken} />}
    </button>
  );
}

/** The size at which the image is shown, so that nothing moves when it arrives. */
function frameOf({ width, height }: FilePart): { width: string; aspectRatio: string } | undefined {
  if (!width || !height) return undefined;
  const scale = Math.min(1, WIDEST_PX / width, HIGHEST_PX / height);
  return { width: `${Math.max(1, Math.round(width * scale))}px`, aspectRatio: `${width} / ${height}` };
}

/** The service sends the file as an attachment, so the page stays. */
function save(url: string): void {
  const anchor = document.createElement("a");
  anchor.href = url;
  anchor.rel = "noopener noreferrer";
  anchor.click();
}

const nameOf = (file: FilePart): string => file.name || (file.url != null ? file.url : `Unnamed ${file.kind}`);

function about({ media_type, size = 0, width, height, pages, url }: FilePart): string {
  const facts = [media_type, width && height ? `${width} × ${height}` : "", pages ? count(pages, "page") : ""];
  return [...facts, url != null ? "at a URL" : bytes(size)].filter((fact) => fact !== "").join(" · ");
}
