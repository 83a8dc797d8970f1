/**
 * A font for plots, because servers often have none: Roboto Regular (Copyright 2011 Google Inc., Apache-2.0), cut down to
 * Latin-1, some Greek and some signs, without hinting.
 *
 * It is a file of 20 kB in assets/, not source code: resvg reads fonts from files only, so text in the source had to be
 * unpacked into a temporary folder first. It is not a dependency either: @fontsource/roboto brings woff2 files, which resvg
 * does not read, and system fonts would make the same plot differ from machine to machine.
 */
import { fileURLToPath } from 'node:url';

export const fontFamily = 'Roboto';

/** From src/, dist/ and the bundle alike, assets/ is three folders up. */
export const fontFile = fileURLToPath(new URL('../../../assets/roboto-latin.ttf', import.meta.url));
