/** The server's metrics in Prometheus' text format. */
const secondsBuckets = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120];

class Histogram {
  readonly #counts = new Array<number>(secondsBuckets.length + 1).fill(0);
  #sum = 0;

  add(seconds: number): void {
    this.#sum += seconds;
    const bucket = secondsBuckets.findIndex((limit) => seconds <= limit);
    const at = bucket < 0 ? secondsBuckets.length : bucket;
    this.#counts[at] = (this.#counts[at] as number) + 1;
  }

  lines(name: string): string[] {
    let total = 0;
    const buckets = this.#counts.map((count, i) => {
      total += count;
      return `${name}_bucket{le="${secondsBuckets[i] ?? '+Inf'}"} ${total}`;
    });
    return [`# TYPE ${name} histogram`, ...buckets, `${name}_sum ${this.#sum}`, `${name}_count ${total}`];
  }
}

export class Counters {
  readonly requestSeconds = new Histogram();
  readonly firstTokenSeconds = new Histogram();
  readonly #requests = new Map<string, number>();
  active = 0;
  promptTokens = 0;
  responseTokens = 0;

  count(route: string, status: number): void {
    const key = `route="${route}",status="${status}"`;
    this.#requests.set(key, (this.#requests.get(key) ?? 0) + 1);
  }

  /** `gauges` are the current values. */
  text(gauges: Readonly<Record<string, number>>): string {
    const plain = (name: string, kind: string, value: number) => [`# TYPE ${name} ${kind}`, `${name} ${value}`];
    return [
      '# TYPE attune_requests_total counter',
      ...[...this.#requests].map(([labels, count]) => `attune_requests_total{${labels}} ${count}`),
      ...plain('attune_prompt_tokens_total', 'counter', this.promptTokens),
      ...plain('attune_response_tokens_total', 'counter', this.responseTokens),
      ...plain('attune_requests_active', 'gauge', this.active),
      ...Object.entries(gauges).flatMap(([name, value]) => plain(`attune_${name}`, 'gauge', value)),
      ...this.requestSeconds.lines('attune_request_seconds'),
      ...this.firstTokenSeconds.lines('attune_first_token_seconds'),
      '',
    ].join('\n');
  }
}
