// What is odd about each Hugging Face family, beyond its row of key names.
#pragma once

namespace rooftile {

class HfConfig;

void odd_gpt2(HfConfig& config);
void odd_gpt_neo(HfConfig& config);
void odd_gptj(HfConfig& config);
void odd_gpt_neox(HfConfig& config);
void odd_opt(HfConfig& config);
void odd_bloom(HfConfig& config);
void odd_falcon(HfConfig& config);
void odd_llama(HfConfig& config);
void odd_mistral(HfConfig& config);
void odd_mixtral(HfConfig& config);
void odd_qwen2(HfConfig& config);
void odd_qwen3(HfConfig& config);
void odd_qwen3_moe(HfConfig& config);
void odd_qwen2_moe(HfConfig& config);
void odd_gemma(HfConfig& config);
void odd_gemma2(HfConfig& config);
void odd_gemma3(HfConfig& config);
void odd_gpt_oss(HfConfig& config);
void odd_deepseek_v2(HfConfig& config);
void odd_deepseek_v3(HfConfig& config);
void odd_olmoe(HfConfig& config);
void odd_olmo2(HfConfig& config);
void odd_phi(HfConfig& config);
void odd_phi3(HfConfig& config);
void odd_starcoder2(HfConfig& config);
void odd_bert(HfConfig& config);
void odd_roberta(HfConfig& config);
void odd_distilbert(HfConfig& config);
void odd_t5(HfConfig& config);
void odd_vit(HfConfig& config);
void odd_whisper(HfConfig& config);

}  // namespace rooftile
