#include "lerobot/distributed/launch/options.h"

namespace lerobot::distributed {

const char* const kLaunchHelp =
    R"(usage: lerobot-launch [options] [--] PROGRAM [arguments of the program]

Starts a program several times on this machine, each with its rank in the environment, as torchrun
does, shows what they print line by line, and ends all of them when one fails.

A PROGRAM whose name ends in .py is started with Python; any other is started directly.

Workers and machines
  --nproc-per-node=N        workers on this machine: a number, gpu (one a CUDA device), cpu (one a
                            CPU), or auto (gpu where there is one, else cpu) (default: 1)
  --nnodes=N                machines; each runs its own lerobot-launch with the same options but
                            --node-rank (default: 1)
  --node-rank=N             this machine's number, from 0; needed with several (default: 0)
  --rdzv-endpoint=HOST[:PORT]
                            where rank 0 listens, on machine 0 (port when left out: 29400)
  --master-addr=HOST        the same for --rdzv-backend=static (default: 127.0.0.1)
  --master-port=PORT        the same for --rdzv-backend=static; 0 takes a free one on one machine
                            (default: 29500)
  --rdzv-backend=NAME       static or c10d: here both mean that ranks follow from --node-rank and
                            rank 0 opens the store that the others join (default: static)
  --rdzv-id=ID              name of the job, for the workers and the log folder (default: none)
  --standalone              one machine, a free port, a name of its own for the job; overrides
                            --rdzv-backend, --rdzv-endpoint and --rdzv-id

Failures
  --max-restarts=N          how often all workers are started again after a failure; on one machine
                            only (default: 0)
  --shutdown-grace-s=N      seconds between SIGTERM and SIGKILL for workers that have to end
                            because another failed (default: 30)
  --monitor-interval=S      accepted from torchrun's command lines; the end of a worker is noticed
                            at once (default: 0.1)

What is shown and kept
  --local-ranks-filter=LIST show only these local ranks, for instance 0,2 (default: all)
  --log-dir=DIR             keep every worker's output as files below DIR too
  -r, --redirects=STREAMS   write streams to files instead of showing them: 1 standard output, 2
                            standard error, 3 both, or by local rank, for instance 0:3,1:2
                            (default: 0)
  -t, --tee=STREAMS         write streams to files and show them (default: 3 with --log-dir and
                            without --redirects, else 0)

The program
  -m, --module              PROGRAM is a Python module, as with python -m
  --no-python               start PROGRAM directly whatever its name is
  --role=NAME               ROLE_NAME of the workers (default: default)
  --help                    show this text

Underscores may stand for the hyphens inside an option's name. An option that is not given is read
from the environment, for instance --nnodes from PET_NNODES. PYTHON_EXEC names the Python to use.
)";

}  // namespace lerobot::distributed
