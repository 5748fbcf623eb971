// Reads a JSON list of state machine definitions, each a text. Prints for each the problems that AWS's language service finds.
import { text } from "node:stream/consumers";
import service from "amazon-states-language-service";
import { TextDocument } from "vscode-languageserver-textdocument";

const language = service.getLanguageService({});

async function problems(definition) {
  const document = TextDocument.create("file:///definition.asl", "asl", 1, definition);
  const found = await language.doValidation(document, language.parseJSONDocument(document));
  return found.map((each) => `${document.getText(each.range)}: ${each.message}`);
}

console.log(JSON.stringify(await Promise.all(JSON.parse(await text(process.stdin)).map(problems))));
