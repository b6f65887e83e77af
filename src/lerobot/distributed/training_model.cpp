#include "lerobot/distributed/training_model.h"

#include "lerobot/distributed/replicated_model.h"
#include "lerobot/distributed/sharded_model.h"
#include "lerobot/distributed/whole_model.h"

namespace lerobot::distributed {

std::unique_ptr<TrainingModel> make_training_model(policy::Policy& policy, const World& world,
                                                   const config::AcceleratorConfig& options) {
  if (world.size() == 1) return make_whole_model(policy);
  if (!world.mesh().is_sharded()) return make_replicated_model(policy, world, options);
  return make_sharded_model(policy, world, options);
}

}  // namespace lerobot::distributed
