/** How metrics are named, grouped, coloured and drawn. The same rules as the plots of a run's report. */

/** Duplicates of others, and bookkeeping: no panel. */
const left =
  /_by_examples$|^(reward_mean|first_policy_loss|kl_div|completion_length_(avg|max)|proper_ending_rate)$|^(epoch|grad_clipped|time|examples|tokens|skipped_steps|updates)$/;
const shares =
  /^accuracy[_/]|(^|_)(accuracy|ended|clip_fraction|pass_at_\d+|zero_spread(_right|_wrong)?|top1|agreement)$|^(share|fraction)_|_(share|fraction|rate)$/;

/** What is looked at first, of a policy and of the rest: the loss of a policy says nothing about learning. */
const overviews = {
  policy: /^(accuracy|reward|teacher_kl|kl|entropy|length_mean|clip_fraction)$/,
  other: /^(accuracy|pairwise_accuracy|loss|reward|margin|margin_mean|kl|perplexity)$/,
};

const panelGroups: [title: string, members: RegExp][] = [
  ['Outcome', /accuracy|^reward|^score$|pass_at|margin|^chosen|^rejected|^win/],
  ['Loss', /loss|perplexity/],
  ['Policy', /kl|teacher|student|entropy|clip|ratio|advantage|zero_spread|value|explained/],
  ['Length', /length|ended|tokens_mean/],
  ['Optimiser', /grad_norm|^lr$|weight|beta/],
  ['Speed', /seconds|per_second|step_time|memory|utili[sz]ation/],
];

export interface Panel {
  /** The name without `train/` and `eval/`. */
  title: string;
  /** Names of its metrics, training first. */
  names: string[];
}

export interface PanelGroup {
  title: string;
  panels: Panel[];
}

export const bareName = (name: string) => name.slice(name.indexOf('/') + 1);

/** Panels by group: `train/` and `eval/` of one name together. */
export function panelsOf(names: readonly string[]): PanelGroup[] {
  const byTitle = Map.groupBy(
    names.filter((name) => !left.test(bareName(name))),
    bareName,
  );
  const panels = [...byTitle].map(([title, same]) => ({
    title,
    names: same.sort(trainingFirst),
  }));
  const isPolicy = byTitle.has('entropy') || byTitle.has('clip_fraction') || byTitle.has('policy_loss');
  const groups = [['Overview', isPolicy ? overviews.policy : overviews.other] as const, ...panelGroups];
  const byGroup = Map.groupBy(panels, ({ title }) => groups.findIndex(([, members]) => members.test(title)));
  const order = [...groups.keys(), -1];
  return order.flatMap((i) => {
    const inside = byGroup.get(i);
    return inside ? [{ title: groups[i]?.[0] ?? 'More', panels: inside.sort(foremostFirst) }] : [];
  });
}

const foremost = [
  ...['accuracy', 'pairwise_accuracy', 'teacher_kl', 'reward', 'loss', 'kl', 'entropy', 'length_mean', 'clip_fraction'],
  ...['grad_norm', 'lr'],
];
function foremostFirst(a: Panel, b: Panel): number {
  const rank = ({ title }: Panel) => (foremost.includes(title) ? foremost.indexOf(title) : foremost.length);
  return rank(a) - rank(b);
}
const trainingFirst = (a: string, b: string) => Number(b.startsWith('train')) - Number(a.startsWith('train'));

/** The colour's custom property: a colour means one thing everywhere. */
export function colorOf(name: string): string {
  if (/verifier|gold/.test(name)) return '--gold';
  if (/reward[-_ ]model|proxy/.test(name)) return '--proxy';
  if (/^train(ing)?\b/.test(name)) return '--training';
  if (/^(eval|held|valid|test)/.test(name)) return '--held-out';
  return '--plain';
}

/** `eval/accuracy` → held-out, `train/…` → training. */
export function sideOf(name: string): string {
  if (name.startsWith('train/')) return 'training';
  if (name.startsWith('eval/')) return 'held-out';
  return bareName(name).replaceAll('_', ' ');
}

/** `length_mean` → length mean; what is written short everywhere stays so. */
export function labelOf(name: string): string {
  const known: Record<string, string> = {
    ...{ lr: 'learning rate', nll: 'loss on the text' },
    ...{ kl: 'KL to the reference', old_kl: 'KL to the sampler', teacher_kl: 'KL to the teacher' },
  };
  const bare = bareName(name);
  return known[bare] ?? bare.replaceAll('_', ' ').replace(/\bkl\b/, 'KL');
}

/** Of a preference or reward run accuracy is the share of pairs in which the chosen response wins, not of right answers. */
export const labelFor = (kind: string, name: string) =>
  `${(kind === 'preference' || kind === 'reward') && bareName(name) === 'accuracy' ? 'pair ' : ''}${labelOf(name)}`;

const units: [RegExp, string][] = [
  [/per_second$/, 'tokens/s'],
  [/seconds$|^step_time$/, 's'],
  [/(^|_)(kl|nll)$|entropy|logprob|sampler_gap/, 'nats'],
  [/^length/, 'tokens'],
];

/** What its values are counted in, where they are more than numbers. */
export const unitOf = (name: string) => units.find(([pattern]) => pattern.test(bareName(name)))?.[1];

export const isShare = (name: string) => shares.test(bareName(name));

/** Of a share: the least top of its y axis. Clip fractions are a few percent, which an axis to 1 would press flat. */
export const shareTopOf = (name: string) => (isShare(name) ? (/clip_fraction$/.test(name) ? 0.05 : 1) : undefined);

/** No panel for a constant. */
export function isConstant(lists: readonly (readonly (number | null)[])[]): boolean {
  const known = lists.flat().filter((value) => value !== null);
  return known.length > 2 && known.every((value) => value === known[0]);
}
