import { describe, expect, it } from 'vitest';
import { BoundedTemplate } from './bounded-template.ts';
import { ChatTemplate } from './chat.ts';

describe('a template from a stranger', () => {
  const limits = { steps: 20_000, seconds: 60, size: 10_000 };
  it.each([
    [
      '{% for a in range(999) %}{% for b in range(999) %}{% for c in range(999) %}x{% endfor %}{% endfor %}{% endfor %}',
      'steps',
    ],
    ['{% for a in range(1000000000) %}x{% endfor %}', 'larger than'],
    [
      "{% set ns = namespace(x='aa') %}{% for a in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x }}",
      'larger',
    ],
    ['{% set ns = namespace(x=[1]) %}{% for a in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}', 'larger than'],
    ['{% for a in range(0, 5, 0) %}{% endfor %}', 'step must not be zero'],
  ])('is stopped: %.60s', (source, message) => {
    expect(() => new BoundedTemplate(source, limits).render({})).toThrow(message);
  });

  it('is stopped by the clock too', () => {
    const slow = "{% for a in range(9000) %}{{ text | replace('a', 'b') | length }}{% endfor %}";
    const template = new BoundedTemplate(slow, { seconds: 0.05 });
    expect(() => template.render({ text: 'a'.repeat(50_000) })).toThrow('longer than 0.05 s');
  });

  it('says so as a mistake of the template, and takes what is usual', () => {
    const loops = new ChatTemplate('{% for a in range(100000000) %}{% endfor %}', {});
    expect(() => loops.render([])).toThrow(/The chat template refused these messages: .*larger than/);
    const messages = Array.from({ length: 2000 }, () => ({ role: 'user' as const, content: 'hello' }));
    const plain = new ChatTemplate(
      '{% for m in messages %}{% if m.role == "user" and True %}{{ m.content }}{% endif %}{% endfor %}',
      {},
    );
    expect(plain.render(messages)).toHaveLength(10_000);
    expect(new BoundedTemplate("{{ range(5, 0, -2) | join(',') }} {{ strftime_now('%Y') }}").render({})).toBe(
      `5,3,1 ${new Date().getFullYear()}`,
    );
  });
});

// The output of jinja2 3.1.6 for the same templates, with trim_blocks and lstrip_blocks as transformers sets them.
describe('line ends', () => {
  it.each([
    ['a\r\nb', 'a\nb'],
    ['a\rb\n', 'a\nb'],
    ['{% if true %}\r\nx\r\n{% endif %}\r\nend\r\n', 'x\nend'],
    ['  {% for m in messages %}\r\n  {{ m.content }}\r\n  {% endfor %}\r\n\r\n', '  q\r\nr\n'],
    ["{{ 'a\r\nb' }}|{{ 'a\\r\\nb' }}", 'a\nb|a\r\nb'],
    ['x\n\n', 'x\n'],
    ["{#- c -#}\r\n y \r\n{{- 'z' -}}\r\n\r\n t", 'yzt'],
  ])('of %j are those of jinja2', (source, rendered) => {
    expect(new BoundedTemplate(source).render({ messages: [{ content: 'q\r\nr' }] })).toBe(rendered);
  });
});
