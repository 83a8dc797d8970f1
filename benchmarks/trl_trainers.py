"""TRL's own GRPOTrainer and DPOTrainer on the job that trl-trainers.ts describes. One JSON line at the end.

    python3 trl_trainers.py job.json

The job names the model, the rows, the settings and the folder for the trained model, which attune then measures as it measures its own.
"""
import json, re, sys, time
import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer

job = json.load(open(sys.argv[1]))
torch.set_num_threads(job["threads"])
tokenizer = AutoTokenizer.from_pretrained(job["model"])
model = AutoModelForCausalLM.from_pretrained(job["model"], dtype=torch.float32)
rows = Dataset.from_list([json.loads(line) for line in open(job["rows"])])


def exact(completions, answer, **_):
    """1 where the last text in answer tags is the known one."""
    found = [re.findall(r"<answer>(.*?)</answer>", c[0]["content"], re.S) for c in completions]
    return [float(bool(f) and f[-1].strip() == known) for f, known in zip(found, answer)]


common = dict(output_dir=job["folder"] + "/run", max_steps=job["steps"], learning_rate=job["lr"], warmup_steps=job["warmup"], lr_scheduler_type="constant_with_warmup",
              max_grad_norm=1.0, weight_decay=0.0, seed=job["seed"], use_cpu=True, bf16=False, gradient_checkpointing=False, save_strategy="no", report_to=[],
              logging_steps=1000, disable_tqdm=True)
if job["job"] == "grpo":
    from trl import GRPOConfig, GRPOTrainer
    config = GRPOConfig(per_device_train_batch_size=job["prompts"] * job["group"], num_generations=job["group"], max_completion_length=job["maxNewTokens"],
                        beta=0.0, temperature=1.0, top_p=1.0, loss_type="grpo", scale_rewards="group", **common)
    trainer = GRPOTrainer(model=model, processing_class=tokenizer, reward_funcs=exact, args=config, train_dataset=rows)
else:
    from trl import DPOConfig, DPOTrainer
    config = DPOConfig(per_device_train_batch_size=job["pairs"], beta=job["beta"], max_length=384, **common)
    reference = AutoModelForCausalLM.from_pretrained(job["model"], dtype=torch.float32)
    trainer = DPOTrainer(model=model, ref_model=reference, processing_class=tokenizer, args=config, train_dataset=rows)
begun = time.perf_counter()
trainer.train()
whole = time.perf_counter() - begun
model.save_pretrained(job["folder"] + "/trained")
tokenizer.save_pretrained(job["folder"] + "/trained")
print(json.dumps(dict(case=job["job"], seconds_a_step=whole / job["steps"])), flush=True)
