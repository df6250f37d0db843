// What a run's evaluations say about one seed and one saved step.

import { steps as stepsText } from "./dom.js";
import { nearest } from "./preference.js";

/** The last evaluation that was made with parameters as old as these; a full one where both kinds are there. */
function evaluationAt(run, at) {
  const full = (evaluation) => (evaluation.kind === "full" ? 1 : 0);
  let best = null;
  for (const evaluation of run.evaluations) {
    if (evaluation.step > at) continue;
    if (!best || evaluation.step > best.step || (evaluation.step === best.step && full(evaluation) >= full(best))) best = evaluation;
  }
  return best ?? run.evaluations[0] ?? null;
}

/** The front as the plot wants it. */
export function frontOf(run, seed, at, archive) {
  const { objectives, labels, exact_front: exact } = run;
  const evaluation = evaluationAt(run, at);
  if (!evaluation) {
    const why = run.kind === "run" ? "Nothing was evaluated yet: the front is empty." : "A saved agent has no evaluations: the front is empty.";
    return { objectives, labels, exact, archive, preferences: [], returns: [], note: why };
  }
  // A return that is no number came as null: there is no place for it in the plot.
  const reached = evaluation.returns[Math.max(0, run.seeds.indexOf(seed))];
  const known = (_, p) => reached[p].every(Number.isFinite);
  const returns = reached.filter(known);
  const preferences = run.preferences[evaluation.table].filter(known);
  const many = evaluation.episodes === 1 ? "1 episode" : `${evaluation.episodes} episodes`;
  const marks = [exact ? "◇ the exact front" : "", archive ? "□ the archive" : ""].filter(Boolean).map((words) => ` ${words}.`);
  const note = `${preferences.length} preferences evaluated at step ${stepsText(evaluation.step)}, ${many} each; a click takes one.${marks.join("")}`;
  return { objectives, labels, exact, archive, preferences, returns, note };
}

/** What the evaluation promises for a preference: the return of the nearest evaluated one, and which that is. */
export function expectedAt({ preferences, returns }, lam) {
  const nearby = nearest(preferences, lam);
  return { nearby, expected: returns[nearby] ?? null };
}
