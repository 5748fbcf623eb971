// Markdown of models, as HTML that can do nothing: no images, no forms, no styles, no scripts; links open elsewhere.
import DOMPurify from "dompurify";
import { Marked } from "marked";
import { visible } from "./format.ts";

const marked = new Marked({ gfm: true, breaks: true, async: false });
const SAFE = {
  ALLOWED_TAGS: [
    ..."p br hr b i strong em del code pre blockquote ul ol li a h1 h2 h3 h4 h5 h6".split(" "),
    ..."table thead tbody tr th td input".split(" "),
  ],
  ALLOWED_ATTR: ["href", "start", "align", "type", "checked", "disabled"],
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
};

DOMPurify.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName === "A") {
    node.setAttribute("target", "_blank");
    node.setAttribute("rel", "noopener noreferrer nofollow");
  }
  // of task lists only
  if (node.tagName === "INPUT" && (node.getAttribute("type") !== "checkbox" || !node.hasAttribute("disabled"))) node.remove();
  if (node.tagName === "PRE" || node.tagName === "TABLE") node.setAttribute("tabindex", "0");
});

/** A tag that a model writes is shown as it was written. */
const escaped = (html: string): string => html.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
marked.use({
  renderer: {
    html: ({ text }) => escaped(text),
    image: ({ href, text }) => escaped(`![${text}](${href})`),
  },
});

export function markdown(text: string): string {
  return DOMPurify.sanitize(marked.parse(visible(text)) as string, SAFE);
}
