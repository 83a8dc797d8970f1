import { aten, randn, noGrad, scope, keep } from '/work/wt/fixa/src/tensor/index.ts';
const shapes: [number, number, number][] = [[16,288,864],[16,288,1536],[16,768,288],[16,288,32000],[16,1024,5632],[16,2816,1024],[4,288,864],[1,1024,5632],[8,1024,1024],[64,288,864],[512,288,864],[512,64,256],[512,128,512]];
const out: Record<string, number> = {};
for (let round = 0; round < 6; round++)
noGrad(() => { for (const [m,k,n] of shapes) { 
  const count = Math.max(1, Math.floor(12e6 / (k*n)));
  scope(() => {
  const x = randn([m,k]); const ws = Array.from({length: count}, () => randn([n,k]));
  const reps = Math.max(1, Math.floor(2e8 / (m*k*n*count)));
  const t = performance.now();
  for (let i=0;i<reps;i++) scope(() => { for (const w of ws) aten('attune::linear', x, w, null); });
  const us = (performance.now()-t)*1000/(reps*count);
  const name = `${m}x${k}x${n}`;
  out[name] = Math.min(out[name] ?? 1e9, us);
  }); } });
console.log(Object.entries(out).map(([n,u]) => `${n} ${u.toFixed(1)}`).join('  '));
