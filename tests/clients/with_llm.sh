#!/usr/bin/env bash
# The llm program with tools: with_llm.sh LLM
set -euo pipefail
mkdir -p "$(dirname "$("$1" logs path)")"
cp llm.yaml "$(dirname "$("$1" logs path)")/extra-openai-models.yaml"
"$1" keys set hearth --value none
"$1" -m local --functions "$(dirname "$0")/tools.py" 'Put both words into one file.'
