// The parts that dialogs share: the frame, facts, and a form that asks for a reason.

import { h } from "./dom.js";
import { Refused } from "./server.js";

/** @typedef {import("./dom.js").Child} Child */

const KEPT = "The audit trail keeps it, with your name.";

/**
 * Open a dialog with a title and a button that closes it.
 * @param {string} id
 * @param {string} title
 * @param {(dialog: HTMLDialogElement) => HTMLElement} body
 */
export function openDialog(id, title, body) {
  const dialog = h("dialog", { "aria-labelledby": `${id}-title`, onclose: () => dialog.remove() });
  const close = h("button", { type: "button", class: "close", "aria-label": "Close", onclick: () => dialog.close() }, "×");
  dialog.append(h("header", {}, h("h2", { id: `${id}-title` }, title), close));
  dialog.append(body(dialog));
  document.body.append(dialog);
  dialog.showModal();
}

/** @param {[name: string, value: Child][]} rows those without a value are left out */
export const facts = (rows) =>
  h("dl", {}, rows.filter(([, value]) => value !== undefined && value !== null && value !== false && value !== "").map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));

/** @param {unknown} error */
export const messageOf = (error) => (error instanceof Error ? error.message : String(error));

/**
 * A form that asks for a reason.
 * @param {object} options
 * @param {string} options.id
 * @param {string} options.title
 * @param {Child} options.note
 * @param {Child} [options.fields] further inputs, before the reason
 * @param {HTMLDialogElement} options.dialog
 * @param {(reason: string) => Promise<() => void>} options.act resolves to what follows once the dialog is closed
 * @param {string} options.gone the message if the server no longer knows it
 * @param {string} options.check what to check after an error that the server does not explain
 * @param {string} [options.kept] where the reason is kept
 * @param {boolean} [options.danger] the button warns by its colour
 */
export function reasonForm({ id, title, note, fields, dialog, act, gone, check, kept = KEPT, danger = true }) {
  const reason = h("textarea", { id: `${id}-reason`, rows: 2, maxlength: 1000, required: true, "aria-describedby": `${id}-note` });
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const button = h("button", { type: "submit", class: danger ? "danger" : "" }, title);
  const form = h("form", { class: "release", "aria-label": title }, note, fields,
    h("label", { for: `${id}-reason` }, `Reason. ${kept}`), reason, problem,
    h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), button));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (!reason.value.trim()) {
      reason.value = "";
      reason.reportValidity();
      return;
    }
    button.disabled = true;
    try {
      const next = await act(reason.value.trim());
      dialog.close();
      next();
    } catch (error) {
      const { status, explained } = error instanceof Refused ? error : { status: 0, explained: false };
      problem.textContent = status === 403 ? "You may not do this." : status === 404 ? gone : explained ? messageOf(error) : `${messageOf(error)}. ${check}`;
      problem.hidden = false;
      button.disabled = false;
    }
  });
  return form;
}
