// The dialog that reserves an object: it keeps new work off the object until a time.

import { reserved } from "./announcements.js";
import { openDialog, reasonForm } from "./dialogs.js";
import { h } from "./dom.js";
import { now } from "./format.js";
import { reserve } from "./server.js";

const HOUR_MS = 3_600_000;

/**
 * @param {object} context
 * @param {string} context.connection
 * @param {string} context.object the first value of the field
 * @param {(text: string) => void} context.announce after a change
 */
export function openReservation({ connection, object, announce }) {
  const target = h("input", { id: "reserve-object", type: "text", required: true, maxlength: 3000, value: object, placeholder: "e.g. dw.sales or dw.sales/dt=2013-01-01", autocomplete: "off", spellcheck: "false" });
  const until = h("input", { id: "reserve-until", type: "datetime-local", required: true, value: local(Math.ceil(now() / HOUR_MS) * HOUR_MS) });
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const note = h("p", { id: "reserve-note", class: "note" },
    "No task gets a lock on the object until then. The object must be free now. Only the RESERVE statement of the command line waits for running work. A force release ends the reservation early.");
  openDialog("reservation", "Reserve an object", (dialog) => {
    const form = reasonForm({
      id: "reserve", title: "Reserve", note, dialog, danger: false, kept: "The page and SHOW LOCKS EXTENDED show it.", gone: "There is no such lock store any more.", check: "Check whether the object is reserved before you try again.",
      fields: [h("label", { class: "field" }, h("span", {}, "Object"), target), h("label", { class: "field" }, h("span", {}, `Until (${zone})`), until)],
      act: async (reason) => {
        const end = new Date(until.value);
        await reserve(connection, target.value.trim(), end.toISOString(), reason);
        return () => announce(reserved(target.value.trim(), end.getTime()));
      },
    });
    return h("div", { class: "body" }, form);
  });
}

/** @param {number} ms as a field of this type has it, in the user's zone */
function local(ms) {
  const at = new Date(ms);
  return new Date(ms - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}
