/** Facts about this machine from /proc and the environment; the engine is not needed. */
import { type Dirent, existsSync, readdirSync, readFileSync, statfsSync, statSync } from 'node:fs';
import { availableParallelism, homedir, totalmem } from 'node:os';
import { join } from 'node:path';

export interface Cpu {
  model: string;
  cores: number;
  /** Instruction sets that matter for matrix products, and whether the CPU has them. */
  features: Record<string, boolean>;
}

export interface Memory {
  totalBytes: number;
  availableBytes: number;
}

export interface HubCache {
  folder: string;
  exists: boolean;
  sizeBytes: number;
  freeBytes: number | undefined;
}

export function readCpu(cpuinfo = read('/proc/cpuinfo'), arch: string = process.arch): Cpu {
  const field = (name: string) => new RegExp(`^${name}\\s*:\\s*(.*)$`, 'm').exec(cpuinfo)?.[1] ?? '';
  const flags = new Set(field(arch === 'arm64' ? 'Features' : 'flags').split(/\s+/));
  const features: Record<string, boolean> =
    arch === 'arm64'
      ? { asimd: flags.has('asimd'), sve: flags.has('sve'), bf16: flags.has('bf16') }
      : { avx2: flags.has('avx2'), avx512: flags.has('avx512f'), amx: flags.has('amx_bf16') };
  const model = field('model name') || ARM_PARTS[field('CPU part')] || `${arch} ${field('CPU part')}`.trim();
  return { model, cores: availableParallelism(), features };
}

/** On ARM, Linux gives only a part number (Arm's Main ID Register). */
const ARM_PARTS: Record<string, string> = {
  '0xd0c': 'Neoverse N1',
  '0xd40': 'Neoverse V1',
  '0xd49': 'Neoverse N2',
  '0xd4f': 'Neoverse V2',
};

/** The memory that this process may use: the machine's, or the container's limit if smaller. */
export function readMemory(meminfo = read('/proc/meminfo'), limit = process.constrainedMemory()): Memory {
  const kilobytes = Number(/^MemAvailable:\s*(\d+)/m.exec(meminfo)?.[1] ?? 0);
  const available = kilobytes > 0 ? kilobytes * 1024 : process.availableMemory();
  const total = totalmem();
  // Without a container's limit Node reports 0 or an absurdly large number.
  const limited = limit > 0 && limit < total ? limit : total;
  return { totalBytes: limited, availableBytes: Math.min(available, limited) };
}

/** The Hugging Face cache, by the same variables as Python's huggingface_hub. */
export function readHubCache(env: NodeJS.ProcessEnv = process.env): HubCache {
  const home = env.HF_HOME || join(env.XDG_CACHE_HOME || join(env.HOME || homedir(), '.cache'), 'huggingface');
  const folder = env.HF_HUB_CACHE || join(home, 'hub');
  let place = folder;
  while (!existsSync(place) && place !== '/') place = join(place, '..');
  const disk = statfsSync(place);
  return { folder, exists: existsSync(folder), sizeBytes: folderSize(folder), freeBytes: disk.bavail * disk.bsize };
}

/** Snapshots are links to blobs, so only plain files count. */
function folderSize(folder: string): number {
  let entries: Dirent[];
  try {
    entries = readdirSync(folder, { withFileTypes: true });
  } catch {
    return 0;
  }
  let bytes = 0;
  for (const entry of entries) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) bytes += folderSize(path);
    else if (entry.isFile()) bytes += statSync(path, { throwIfNoEntry: false })?.size ?? 0;
  }
  return bytes;
}

/** An NVIDIA driver with at least one card. */
export function hasNvidiaCard(): boolean {
  return existsSync('/proc/driver/nvidia/gpus') && readdirSync('/proc/driver/nvidia/gpus').length > 0;
}

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
