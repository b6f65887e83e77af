"""huggingface_hub's snapshot_download of a dataset. Says "imported" when it begins, and prints the folder at its end.

  hub_download.py ID CACHE
"""

import sys

from huggingface_hub import snapshot_download


def main() -> None:
    repo, cache = sys.argv[1:]
    print("imported", flush=True)
    print(snapshot_download(repo, repo_type="dataset", cache_dir=cache))


if __name__ == "__main__":
    main()
