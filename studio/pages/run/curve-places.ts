/** Panels keep their places while a page is open: one that comes later comes last, so that nothing moves. */

export interface DrawnGroup<P extends { title: string }> {
  title: string;
  panels: P[];
  /** Metrics left out because they are others by a second name: the score is the reward where nothing is taken off. */
  same: string[];
}

const later = 'Came later';

/** `places`: panel → its group, in the order of the page; what is new is added. */
export function keepPlaces<P extends { title: string }>(
  groups: readonly DrawnGroup<P>[],
  places: Map<string, string>,
): DrawnGroup<P>[] {
  const isFirst = places.size === 0;
  for (const { title, panels } of groups)
    for (const panel of panels) if (!places.has(panel.title)) places.set(panel.title, isFirst ? title : later);
  const panels = new Map(groups.flatMap((group) => group.panels.map((panel) => [panel.title, panel] as const)));
  return [...new Set(places.values())].map((title) => ({
    title,
    panels: [...places].flatMap(([panel, group]) => (group === title ? (panels.get(panel) ?? []) : [])),
    same: groups.find((group) => group.title === title)?.same ?? [],
  }));
}
