// The look of all pages: each draws the items of its scenes with these panels, whatever it reads them from.
import { useEffect, useRef, useState } from "react";
import { createRoot } from "react-dom/client";
import { SCENES } from "./scenes.js";

/**
 * A scene. `items` are, in order:
 * `{ user, waits?, withdraw? }` a message of the user, `{ agent, text, cut? }` an answer, `{ call, input, state, result? }`,
 * `{ approve, input, call }` and `{ questions, answer }` what waits for the user, `{ output, agent }`, and `{ note }`.
 * `send(text, how?)` sends a message; `how` is `steer` or `queue` while a run works, if the page `queues` messages.
 */
export function Panel({ scene, items, busy, send, stop, queues = true }) {
  const [text, setText] = useState(scene.says);
  const end = useRef(null);
  useEffect(() => void (end.current.scrollTop = end.current.scrollHeight));
  const say = (how) => {
    if (text === "") return;
    setText("");
    send(text, how);
  };
  return (
    <section data-scene={scene.name} data-busy={busy} aria-label={scene.title}>
      <h2>{scene.title}</h2>
      <div className="items" ref={end}>
        {items.map((item, at) => (
          <Item key={at} item={item} />
        ))}
      </div>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          say(busy ? "queue" : undefined);
        }}
      >
        <input aria-label="Message" value={text} placeholder="Message" onChange={(event) => setText(event.target.value)} />
        {busy ? (
          <>
            {queues && (
              <button type="button" onClick={() => say("steer")}>
                Steer
              </button>
            )}
            {queues && <button type="submit">Queue</button>}
            <button type="button" onClick={stop}>
              Stop
            </button>
          </>
        ) : (
          <button type="submit">Send</button>
        )}
      </form>
    </section>
  );
}

function Item({ item }) {
  if (item.user !== undefined) return <Said {...item} />;
  if (item.questions !== undefined) return <Questions {...item} />;
  if (item.approve !== undefined) return <Approval {...item} />;
  if (item.call !== undefined) return <Call {...item} />;
  if (item.output !== undefined) return <Output {...item} />;
  if (item.note !== undefined) return <p className="note">{item.note}</p>;
  return (
    <div className="answer">
      {item.agent && <b>{item.agent}</b>}
      <p>
        {item.text}
        {item.cut && <i className="cut"> stopped here</i>}
      </p>
    </div>
  );
}

const Said = ({ user, waits, withdraw }) => (
  <div className={waits ? "user waits" : "user"}>
    <p>{user}</p>
    {waits && (
      <span>
        waits {withdraw && <button onClick={withdraw}>Withdraw</button>}
      </span>
    )}
  </div>
);

const STATES = { running: "runs", done: "done", failed: "failed", elsewhere: "waits for another system", asks: "waits for you" };

function shown(result) {
  if (result?.transferred_to !== undefined) return `${result.transferred_to} answers from here on`;
  return typeof result === "string" ? result : JSON.stringify(result);
}

const Call = ({ call, input, state, result }) => (
  <div className={`call ${state}`}>
    <code>
      {call}({Object.values(input ?? {}).join(", ")})
    </code>
    <span>{STATES[state]}</span>
    {result !== undefined && <p>{shown(result)}</p>}
  </div>
);

const Approval = ({ call, input, approve }) => (
  <div className="ask" role="group" aria-label={`Approve ${call}`}>
    <p>
      Allow <code>{call}</code>?
    </p>
    <dl>
      {Object.entries(input).map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{String(value)}</dd>
        </div>
      ))}
    </dl>
    <button onClick={() => approve(true)}>Approve</button> <button onClick={() => approve(false)}>Deny</button>
  </div>
);

/** A form of all questions that a call asks at once: choices as buttons to select, schemas as fields. */
function Questions({ questions, answer }) {
  const [given, setGiven] = useState({});
  const put = (at, value) => setGiven((before) => ({ ...before, [at]: value }));
  const submit = (event) => {
    event.preventDefault();
    const answers = questions.map((_, at) => given[at]);
    answer(answers.length === 1 ? answers[0] : answers);
  };
  return (
    <form className="ask" aria-label="Questions" onSubmit={submit}>
      {questions.map(({ text, schema, problem }, at) => (
        <fieldset key={at}>
          <legend>{text}</legend>
          {problem && <p className="problem">{problem}</p>}
          <Field schema={schema} name={text} value={given[at]} put={(value) => put(at, value)} />
        </fieldset>
      ))}
      <button type="submit">Answer</button>
    </form>
  );
}

function Field({ schema, name, value, put, required = true }) {
  if (schema.enum) {
    return schema.enum.map((choice) => (
      <label key={choice}>
        <input type="radio" name={name} required={required} checked={value === choice} onChange={() => put(choice)} /> {choice}
      </label>
    ));
  }
  if (schema.type === "object") {
    return Object.entries(schema.properties).map(([field, inner]) => (
      <Field
        key={field}
        schema={inner}
        name={inner.title ?? field}
        value={value?.[field]}
        put={(one) => put({ ...value, [field]: one })}
        required={schema.required?.includes(field) ?? false}
      />
    ));
  }
  if (schema.type === "boolean") {
    return (
      <label>
        <input type="checkbox" checked={value ?? false} onChange={(event) => put(event.target.checked)} /> {name}
      </label>
    );
  }
  const number = schema.type === "integer" || schema.type === "number";
  return (
    <label>
      {name}{" "}
      <input
        type={number ? "number" : "text"}
        required={required}
        placeholder={schema.description}
        min={schema.minimum}
        max={schema.maximum}
        value={value ?? ""}
        onChange={(event) => put(number ? Number(event.target.value) : event.target.value)}
      />
    </label>
  );
}

const Output = ({ agent, output }) => (
  <div className="answer output">
    {agent && <b>{agent}</b>}
    <h3>{output.title}</h3>
    <ol>
      {(output.stops ?? []).map((stop, at) => (
        <li key={at}>
          <time>{stop.time}</time> {stop.place}
        </li>
      ))}
    </ol>
  </div>
);

/** Draw the page: its name, and a `Scene` for each of the scenes `shown`, whose session begins with the `?as=` of the address. */
export function draw(name, Scene, shown = SCENES.map(({ name: scene }) => scene)) {
  const own = new URLSearchParams(location.search).get("as");
  createRoot(document.body.appendChild(document.createElement("main"))).render(
    <>
      <h1>{name}</h1>
      <div className="scenes">
        {SCENES.filter((scene) => shown.includes(scene.name)).map((scene) => (
          <Scene key={scene.name} scene={{ ...scene, session: `${own}-${scene.name}` }} />
        ))}
      </div>
    </>,
  );
}
