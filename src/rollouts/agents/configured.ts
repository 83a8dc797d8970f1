/** Who plays the episodes of a config: of its environments, or of its agents. */
import type { Tokenizer } from '../../text/index.ts';
import type { RolloutPlayer } from '../drawing.ts';
import { type EpisodesConfig, episodePlayer } from '../episodes/player.ts';
import { AgentPlayer } from './player.ts';

/** The options of a run's episodes; names as in configs. */
export interface PlayingConfig extends EpisodesConfig {
  agent?: string;
  toolTimeout: number;
  promptMaxLength: number;
}

/** The player of a config; undefined where it has neither environments nor agents. */
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
