/** The player of a config's episodes, for environments or for agents. */
import type { Tokenizer } from '../../text/index.ts';
import type { RolloutPlayer } from '../drawing.ts';
import { type EpisodesConfig, episodePlayer } from '../episodes/player.ts';
import { AgentPlayer } from './player.ts';

/** The options of a run's episodes, named as in configs. */
export interface PlayingConfig extends EpisodesConfig {
  agent?: string;
  toolTimeout: number;
  promptMaxLength: number;
}

/** The player of a config. undefined without environments and agents. */
export function configuredPlayer(
  config: PlayingConfig,
  tokenizer: Tokenizer,
  onFailure?: (error: Error) => void,
): RolloutPlayer | undefined {
  if (config.agent === undefined) return episodePlayer(config, tokenizer, onFailure);
  const { maxTurns, onRewardError: onError, promptFormat: format, templateVariables } = config;
  return new AgentPlayer(tokenizer, {
    ...{ maxTurns, onError, onFailure, format, templateVariables },
    ...{ timeLimitMs: 1000 * config.toolTimeout, maxPromptTokens: config.promptMaxLength },
  });
}
