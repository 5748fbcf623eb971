import { signal } from "@preact/signals";
import { render } from "preact";
import { useEffect } from "preact/hooks";
import { enter, local, open, phase } from "./api.ts";
import { ConnectionState } from "./connection.tsx";
import { extra } from "./extras.ts";
import { Loading, LoadingDialog } from "./loading.tsx";
import { helpOpen, listenToKeys, paletteOpen } from "./keys.tsx";
import { keepFresh } from "./listing.ts";
import { NewChat } from "./newchat.tsx";
import { gallery } from "./pictures.ts";
import { Empty } from "./pieces.tsx";
import { type Compared, route } from "./route.ts";
import { SessionView } from "./sessionview.tsx";
import { Sidebar } from "./sidebar.tsx";
import { SignIn } from "./signin.tsx";
import "./tokens.css";
import "./style.css";
import "./find.css";
import "./chat.css";

const narrowly = matchMedia("(max-width: 860px)");
const narrow = signal(narrowly.matches);
narrowly.addEventListener("change", ({ matches }) => (narrow.value = matches));

function App() {
  const now = phase.value;
  if (now.is === "opening") return <p class="opening">Opening…</p>;
  if (now.is === "refused") {
    return (
      <main class="alone">
        <Empty title={now.title}>
          <p>{now.why}</p>
          <button onClick={() => location.reload()}>Try again</button>
        </Empty>
      </main>
    );
  }
  if (now.is === "signing-in") return <SignIn site={now.site} onProof={(proof) => enter(now.site, proof)} />;
  return <Console />;
}

function Console() {
  useEffect(() => {
    keepFresh();
    return listenToKeys();
  }, []);
  const at = route.value;
  useEffect(() => {
    const title = { fleet: "Fleet", compare: "Compare", live: "Running now" }[at.view as string];
    if (title !== undefined) document.title = `${title} · Helix`;
  }, [at.view]);
  // On a narrow screen the list is a view of its own.
  if (narrow.value && at.view === "home") {
    return (
      <div class="app at-home">
        <ConnectionState local={local.value} />
        <main id="main" tabIndex={-1}>
          <h1 class="unseen">Sessions</h1>
          <Sidebar />
        </main>
        {helpOpen.value && <Help />}
        {paletteOpen.value && <Palette />}
      </div>
    );
  }
  return (
    <div class={`app at-${at.view}`}>
      <a class="skip" href="#main" onClick={(event) => (event.preventDefault(), document.getElementById("main")?.focus())}>
        Skip to the session
      </a>
      <ConnectionState local={local.value} />
      <Sidebar />
      <main id="main" tabIndex={-1}>
        {at.view === "session" && <SessionView key={at.id} id={at.id} tab={at.tab} call={at.call} />}
        {at.view === "compare" && <CompareView {...at} />}
        {at.view === "fleet" && <Fleet agent={at.agent} />}
        {at.view === "live" && <Live />}
        {(at.view === "new" || at.view === "home") && <NewChat agent={at.view === "new" ? at.agent : undefined} />}
      </main>
      {helpOpen.value && <Help />}
      {paletteOpen.value && <Palette />}
      <Lightbox />
    </div>
  );
}

function CompareView(given: Compared) {
  const view = extra("compare");
  return view ? <view.Compare key={`${given.left} ${given.right}`} {...given} /> : <Loading name="compare" />;
}

function Fleet({ agent }: { agent: string | undefined }) {
  const view = extra("fleet");
  return view ? <view.FleetView key={agent} agent={agent} /> : <Loading name="fleet" />;
}

function Lightbox() {
  const open = gallery.value;
  const view = open && extra("lightbox");
  return view ? <view.Lightbox of={open} /> : null;
}

function Live() {
  const view = extra("live");
  return view ? <view.LiveView /> : <Loading name="live" />;
}

function Palette() {
  const view = extra("palette");
  return view ? <view.Palette /> : <LoadingDialog name="palette" title="Go to" onClose={() => (paletteOpen.value = false)} />;
}

function Help() {
  const view = extra("palette");
  return view ? <view.Help /> : <LoadingDialog name="palette" title="Keyboard" onClose={() => (helpOpen.value = false)} />;
}

render(<App />, document.getElementById("app") as HTMLElement);
void open();
