// What this tab keeps of a model since the page was opened: its pictures by class, those before each change, for undo, and
// classes that have no images yet. Only the latter survive a reload.

const MOST_PICTURES = 60; // of a class
const MOST_PAST = 20;
const KEY = (name) => `dsal-classes-${name}`;
const sittings = new Map();

/** Remember that this tab has started a model of that name. */
export const begin = (name) => sessionStorage.setItem(KEY(name), "[]");

/** Whether this tab has started a model of that name. */
export const isStarted = (name) => sessionStorage.getItem(KEY(name)) !== null;

/** {pictures, past, future, drafts, unfolded, wide}: maps of pictures {blob, thumb, name} by class, and sets of classes. */
export function sittingOf(name) {
  const drafts = JSON.parse(sessionStorage.getItem(KEY(name)) ?? "[]");
  const fresh = { pictures: new Map(), past: [], future: [], drafts, unfolded: new Set(), wide: new Set() };
  sittings.set(name, sittings.get(name) ?? fresh);
  return sittings.get(name);
}

/** Keep the classes without images for a reload; with null, none and not even that the model was started. */
export function keepDrafts(name, drafts) {
  if (drafts === null) sessionStorage.removeItem(KEY(name));
  else sessionStorage.setItem(KEY(name), JSON.stringify(drafts));
}

export function leave(name) {
  sittings.delete(name);
  keepDrafts(name, null);
}

/** Keep the pictures as they are before a change. */
export function remember(sitting) {
  sitting.past = [...sitting.past, new Map(sitting.pictures)].slice(-MOST_PAST);
  sitting.future = [];
}

export function undone(sitting) {
  if (!sitting.past.length) return;
  sitting.future.push(sitting.pictures);
  sitting.pictures = sitting.past.pop();
}

export function redone(sitting) {
  if (!sitting.future.length) return;
  sitting.past.push(sitting.pictures);
  sitting.pictures = sitting.future.pop();
}

export function add(sitting, label, pictures) {
  const all = [...(sitting.pictures.get(label) ?? []), ...pictures];
  sitting.pictures.set(label, all.slice(-MOST_PICTURES));
}

/** Take pictures out of their classes, wherever they are; the same file may have been added more than once. */
export function take(sitting, blobs) {
  for (const [label, pictures] of sitting.pictures) {
    sitting.pictures.set(label, pictures.filter(({ blob }) => !blobs.some((taken) => isSame(blob, taken))));
  }
}

function isSame(one, other) {
  const facts = ({ name, size, lastModified }) => JSON.stringify([name, size, lastModified]);
  return one === other || (one instanceof File && other instanceof File && facts(one) === facts(other));
}

/** Move the pictures of a class to its new name, or remove them if that is null. */
export function moveClass(sitting, old, fresh) {
  const pictures = sitting.pictures.get(old) ?? [];
  sitting.pictures.delete(old);
  if (fresh) sitting.pictures.set(fresh, pictures);
}
