// Whose token it is, and what it may do.
#pragma once

#include <optional>

#include "lerobot/hub/hub_client.h"
#include "lerobot/hub/repo.h"

namespace lerobot::hub {

/// Before long work whose result is to be published: throws Error when it can't be, as far as the
/// Hub tells now. Offline, no token, one that is not valid or may only read, a repository that is
/// missing and in somebody else's name, one that is public though `is_private`. A Hub that is out
/// of reach is a warning.
void check_may_publish(HubClient& client, const Repo& repo,
                       std::optional<bool> is_private = std::nullopt);

}  // namespace lerobot::hub
