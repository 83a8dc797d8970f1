/** A vitest reporter that ends a run with one plain line, `N passed, N failed`, for programs that read the log. */
import type { Reporter, TestModule } from 'vitest/node';

export default class ClosingLine implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], unhandled: readonly unknown[]): void {
    let passed = 0;
    // An error outside of any test, or a file that could not be loaded, counts as one failure each.
    let failed = unhandled.length;
    for (const module of modules) {
      const before = failed;
      for (const test of module.children.allTests()) {
        if (test.result().state === 'passed') passed++;
        if (test.result().state === 'failed') failed++;
      }
      if (!module.ok() && failed === before) failed++;
    }
    // After the summary that the default reporter prints at the end of the same event.
    process.once('exit', () => process.stdout.write(`\n${passed} passed, ${failed} failed\n`));
  }
}
