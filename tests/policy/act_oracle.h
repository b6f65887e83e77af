// What the tests of ACT share: its oracles and the policy itself.
#pragma once

#include "lerobot/policy/act/act_policy.h"
#include "tests/policy/oracle.h"
