# To be sourced: the libraries that PyTorch uses, so that both measure the same ones; the system's where there is no PyTorch. Sets `python`, `wheels`, ROOFTILE_LIBRARY_PATH.
python=python3
for candidate in python3 /opt/torch/.venv/bin/python3; do
  if "$candidate" -c 'import torch' 2>/dev/null; then
    python=$candidate
    break
  fi
done
wheels=$("$python" -c 'import importlib.util
spec=importlib.util.find_spec("nvidia")
print(list(spec.submodule_search_locations)[0] if spec else "")' 2>/dev/null)
folders=""
if [ -n "$wheels" ]; then
  for part in cu13 cublas cudnn nccl cuda_nvrtc; do
    [ -d "$wheels/$part/lib" ] && folders="$folders${folders:+:}$wheels/$part/lib"
  done
fi
export ROOFTILE_LIBRARY_PATH="$folders${ROOFTILE_LIBRARY_PATH:+:$ROOFTILE_LIBRARY_PATH}"
export LD_LIBRARY_PATH="$folders${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
