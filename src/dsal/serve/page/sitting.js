// What this tab keeps of a model since the page was opened: its pictures by class, those before and after each change, for
// undo and redo, and classes that have no images yet. It survives a reload.

import { keep, kept } from "./kept.js";

const MOST_PICTURES = 60; // of a class
const MOST_PAST = 20;
const KEY = (name) => `dsal-classes-${name}`;
const sittings = new Map();

/** Remember that this tab has started a model of that name. */
export const begin = (name) => sessionStorage.setItem(KEY(name), "[]");

/** Whether this tab has started a model of that name. */
export const isStarted = (name) => sessionStorage.getItem(KEY(name)) !== null;

/**
 * {pictures, past, future, drafts, unfolded, wide}: maps of pictures {blob, thumb, name, mistaken} by class, and sets of
 * classes; mistaken is the class that the model would have taken the picture for without learning it, or null.
 */
export async function sittingOf(name) {
  if (!sittings.has(name)) {
    const drafts = JSON.parse(sessionStorage.getItem(KEY(name)) ?? "[]");
    const { present: [pictures] = [new Map()], past = [], future = [] } = await kept(name);
    sittings.set(name, { pictures, past, future, drafts, unfolded: new Set(), wide: new Set(), changed: false });
  }
  return sittings.get(name);
}

/** Keep a sitting for a reload; the classes without images only until the model exists and there are none. */
export function save(name, sitting, exists) {
  if (exists && !sitting.drafts.length) sessionStorage.removeItem(KEY(name));
  else sessionStorage.setItem(KEY(name), JSON.stringify(sitting.drafts));
  if (!sitting.changed) return;
  sitting.changed = false;
  keep(name, { present: [new Map(sitting.pictures)], past: [...sitting.past], future: [...sitting.future] });
}

export function leave(name) {
  sittings.delete(name);
  sessionStorage.removeItem(KEY(name));
  keep(name, {});
}

/** Keep the pictures as they are before a change. */
export function remember(sitting) {
  sitting.past = [...sitting.past, new Map(sitting.pictures)].slice(-MOST_PAST);
  sitting.future = [];
  sitting.changed = true;
}

/** Keep no pictures of earlier states: the model cannot return to them. */
export function forgetPast(sitting) {
  sitting.past = [];
  sitting.future = [];
  sitting.changed = true;
}

export function undone(sitting) {
  if (!sitting.past.length) return;
  sitting.future.push(sitting.pictures);
  sitting.pictures = sitting.past.pop();
  sitting.changed = true;
}

export function redone(sitting) {
  if (!sitting.future.length) return;
  sitting.past.push(sitting.pictures);
  sitting.pictures = sitting.future.pop();
  sitting.changed = true;
}

export function add(sitting, label, pictures) {
  const all = [...(sitting.pictures.get(label) ?? []), ...pictures];
  sitting.pictures.set(label, all.slice(-MOST_PICTURES));
  sitting.changed = true;
}

/** Take pictures out of their classes, wherever they are; the same file may have been added more than once. */
export function take(sitting, blobs) {
  for (const [label, pictures] of sitting.pictures) {
    sitting.pictures.set(label, pictures.filter(({ blob }) => !blobs.some((taken) => isSame(blob, taken))));
  }
  sitting.changed = true;
}

function isSame(one, other) {
  const facts = ({ name, size, lastModified }) => JSON.stringify([name, size, lastModified]);
  return one === other || (one instanceof File && other instanceof File && facts(one) === facts(other));
}

/** Move the pictures of a class to its new name, or remove them if that is null. */
export function moveClass(sitting, old, fresh) {
  for (const picture of [...sitting.pictures.values()].flat()) if (picture.mistaken === old) picture.mistaken = fresh;
  const pictures = sitting.pictures.get(old) ?? [];
  sitting.pictures.delete(old);
  if (fresh) sitting.pictures.set(fresh, pictures);
  sitting.changed = true;
}
