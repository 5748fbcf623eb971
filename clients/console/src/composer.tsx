// Where a message is written. Enter sends; with Shift it begins a line.
import { useRef, useState } from "preact/hooks";
import { Icon } from "./pieces.tsx";

interface Given {
  label: string;
  onSend: (message: string) => Promise<void>;
  disabled?: boolean;
  hint?: string;
}

export function Composer({ label, onSend, disabled = false, hint }: Given) {
  const [text, setText] = useState("");
  const [busy, setBusy] = useState(false);
  const area = useRef<HTMLTextAreaElement>(null);
  const send = async () => {
    if (text.trim() === "" || busy || disabled) return;
    setBusy(true);
    const sent = text;
    setText("");
    try {
      await onSend(sent);
    } finally {
      setBusy(false);
      area.current?.focus();
    }
  };
  return (
    <form class="composer" onSubmit={(event) => (event.preventDefault(), void send())}>
      <div class="composer-box">
        <textarea
          id="composer"
          ref={area}
          rows={Math.min(8, text.split("\n").length)}
          aria-label={label}
          placeholder={hint ?? label}
          value={text}
          disabled={disabled}
          onInput={(event) => setText(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
            event.preventDefault();
            void send();
          }}
        />
        <button class="primary round" aria-label="Send" disabled={disabled || busy || text.trim() === ""}>
          <Icon name="send" />
        </button>
      </div>
    </form>
  );
}
