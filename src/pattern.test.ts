import { describe, expect, it } from 'vitest';
import { patternRisk } from './pattern.ts';

describe('patternRisk', () => {
  it.each([
    ['(a+)+$', 'a repetition inside'],
    ['(?:a*)*b', 'a repetition inside'],
    ['((ab)?c{2,})*', 'a repetition inside'],
    ['(?i:(x|y+))+z', 'a repetition inside'],
    ['(?:[a-z]*\\.)*q_proj', 'a repetition inside'],
    ['(a|a)*$', 'may begin alike'],
    ['(a|ab)+$', 'may begin alike'],
    ['(\\w|a)+$', 'may begin alike'],
    ['(a?|b)+$', 'may begin alike'],
    ['.*.*.*', 'follow one another'],
    ['\\s{2,}|\\w+[ab]++[ab]', 'has to follow two'],
    ['(?:.+|\\n{1,3}|){1,3}\\n++|', 'open repetitions'],
    ['(?:\\w*[ab]*|x){1,3}\\s{1,3}', 'open repetitions'],
    ['(a{100}){100}', 'more than 1000'],
    ['a{99999}', 'more than 1000'],
    ['(?<x>a\\g<x>?)b', 'calls itself'],
    [`${'('.repeat(80)}a${')'.repeat(80)}`, 'deep'],
    ['a|'.repeat(20_000), 'longer than'],
  ])('refuses %.40s', (pattern, risk) => {
    expect(patternRisk(pattern)).toContain(risk);
  });

  // The patterns of GPT-2, Llama 3, Qwen 2, GPT-4o (also Llama 4), DeepSeek V3, BLOOM and CLIP.
  it.each([
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    '[!"#$%&\'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+',
    ' ?[^(\\s|[.,!?…。，、।۔،])]+',
    '<\\|startoftext\\|>|[\\p{L}]+|[\\p{N}]|[^\\s\\p{L}\\p{N}]+',
    '[一-龥\u0800-一가-퟿]+',
    '(?:\\r\\n|\\n)+',
    '(?>a+)+b',
    '(ab)+c',
    '[^\\r\\n]?[A-Z]*[a-z]+(?:x|y)?',
    '(',
    ')a',
    '[a',
    '\\',
    '',
  ])('lets through %.40s', (pattern) => {
    expect(patternRisk(pattern)).toBeUndefined();
  });

  it('lets short texts have more', () => {
    expect(patternRisk('.*a.*b.*c.*d', 4)).toBeUndefined();
    expect(patternRisk('^(?!.*vision).*(q_proj|v_proj)$', 4)).toBeUndefined();
    expect(patternRisk('.*\\.layers\\.(0|1|2[0-9])\\..*\\.(q|k|v)_proj', 4)).toBeUndefined();
    expect(patternRisk('.*a.*b.*c.*d.*e', 4)).toContain('more than 4');
  });
});
