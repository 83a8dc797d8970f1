/**
 * A font for plots, because servers often have none: Roboto Regular (Copyright 2011 Google Inc., Apache-2.0), reduced
 * to Latin-1, some Greek and some symbols, without hinting.
 *
 * It is a file of 20 kB in assets/ because resvg reads fonts only from files. As source text it would have to be
 * unpacked into a temporary folder. A dependency does not help: @fontsource/roboto ships woff2 files, which resvg
 * cannot read. System fonts would make plots differ between machines.
 */
import { fileURLToPath } from 'node:url';

export const fontFamily = 'Roboto';

/** assets/ is three folders up from this file in src/, in dist/ and in the bundle. */
export const fontFile = fileURLToPath(new URL('../../../assets/roboto-latin.ttf', import.meta.url));
