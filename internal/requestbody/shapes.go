// SPDX-License-Identifier: MIT

package requestbody

// The shapes of requests, by the references of the APIs of November 2026. Not in here are content that is somewhere
// else (image_url, file_id, previous_response_id, cachedContent), encrypted content, tools that the provider runs, dearer
// tiers of service, predictions, and templates.

var (
	tier   = words{"auto", "default", "flex", "standard_only"}
	cache  = any_ // cache_control: the reservation has the dearest weight of the input
	cached = kinds{"text": {"type": text, "text": text, "cache_control": cache}}

	function = object{"name": text, "description": text, "parameters": any_, "strict": truth}
	called   = object{"name": text, "arguments": text}

	// sampling are members that change which tokens are drawn, and not how many.
	sampling = object{
		"model": text, "stream": truth, "temperature": number, "top_p": number, "top_k": number, "min_p": number, "seed": number,
		"stop": either{text, list{text}}, "presence_penalty": number, "frequency_penalty": number, "repetition_penalty": number,
		"logit_bias": any_, "user": text, "service_tier": tier, "stream_options": object{"include_usage": truth, "include_obfuscation": truth},
		"safety_identifier": text, "prompt_cache_key": text, "prompt_cache_retention": text, "metadata": any_, "store": truth,
	}

	openAIChat = with(sampling, object{
		"messages": list{object{
			"role": text, "name": text, "refusal": text, "tool_call_id": text, "reasoning_content": text,
			"content": either{text, list{kinds{
				"text": cached["text"], "refusal": {"type": text, "refusal": text},
			}}},
			"tool_calls": list{object{
				"id": text, "type": text, "index": number, "function": called, "custom": object{"name": text, "input": text},
			}},
			"function_call": called,
		}},
		"n": count, "logprobs": truth, "top_logprobs": number, "response_format": any_, "modalities": list{words{"text"}},
		"tools": list{kinds{
			"function": {"type": text, "function": function},
			"custom":   {"type": text, "custom": any_},
		}},
		"tool_choice": any_, "parallel_tool_calls": truth, "functions": list{function}, "function_call": any_,
		"reasoning_effort": text, "verbosity": text,
	})

	openAICompletion = with(sampling, object{
		"prompt": either{text, list{either{text, number, list{number}}}},
		"n":      count, "best_of": count, "suffix": text, "logprobs": number,
	})

	openAIResponse = with(sampling, object{
		"input": either{text, list{either{object{
			"type": words{"message", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"},
			"id":   text, "status": text, "role": text, "name": text, "call_id": text, "arguments": text, "input": text,
			"content": either{text, responseTexts}, "output": either{text, responseTexts},
		}}}},
		"instructions": text, "text": any_, "reasoning": any_, "truncation": text, "include": list{text}, "top_logprobs": number,
		"tools": list{kinds{
			"function": with(function, object{"type": text}),
			"custom":   {"type": text, "name": text, "description": text, "format": any_},
		}},
		"tool_choice": any_, "parallel_tool_calls": truth,
	})

	responseTexts = list{kinds{
		"input_text":  {"type": text, "text": text},
		"output_text": {"type": text, "text": text, "annotations": any_, "logprobs": any_},
		"refusal":     {"type": text, "refusal": text},
	}}

	anthropicMessages = object{
		"model": text, "stream": truth, "temperature": number, "top_p": number, "top_k": number, "stop_sequences": list{text},
		"metadata": any_, "service_tier": tier, "thinking": any_, "tool_choice": any_, "cache_control": cache,
		"system": either{text, list{cached}},
		"messages": list{object{"role": text, "content": either{text, list{kinds{
			"text":     cached["text"],
			"tool_use": {"type": text, "id": text, "name": text, "input": any_, "cache_control": cache},
			"tool_result": {
				"type": text, "tool_use_id": text, "is_error": truth, "cache_control": cache, "content": either{text, list{cached}},
			},
		}}}}},
		"tools": list{object{
			"type": words{"custom"}, "name": text, "description": text, "input_schema": any_, "cache_control": cache, "strict": truth,
		}},
	}

	geminiPart = object{
		"text": text, "thought": truth,
		"functionCall":     object{"id": text, "name": text, "args": any_},
		"functionResponse": object{"id": text, "name": text, "response": any_},
	}

	geminiContents = object{
		"contents":          list{object{"role": text, "parts": list{geminiPart}}},
		"systemInstruction": object{"role": text, "parts": list{geminiPart}},
		"safetySettings":    any_, "toolConfig": any_, "labels": any_,
		"tools": list{object{"functionDeclarations": any_}},
		"generationConfig": object{
			"candidateCount": count, "temperature": number, "topP": number, "topK": number, "seed": number, "stopSequences": list{text},
			"presencePenalty": number, "frequencyPenalty": number, "responseMimeType": text, "responseSchema": any_,
			"responseJsonSchema": any_, "responseLogprobs": truth, "logprobs": number, "thinkingConfig": any_,
			"responseModalities": list{words{"TEXT"}},
		},
	}
)

// with returns the members of two objects.
func with(a, b object) object {
	all := object{}
	for _, from := range []object{a, b} {
		for key, s := range from {
			all[key] = s
		}
	}
	return all
}
