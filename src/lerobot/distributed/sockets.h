// TCP sockets of the ranks' own: a listener, one attempt to connect, the lines that go both ways.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lerobot/base/files.h"

namespace lerobot::distributed {

/// Listens at a port (0: any that is free) of every address of this machine. Throws SystemError.
UniqueFd listen_at(std::uint16_t port);
std::uint16_t port_of(int socket);
/// The address of this end of a connection, as numbers.
std::string own_address(int socket);
bool is_loopback(std::string_view address);

/// What became of one attempt to connect: a socket, or why there is none.
struct Connection {
  UniqueFd socket;
  std::string problem;
};
Connection connect_to(const std::string& host, std::uint16_t port, std::chrono::milliseconds limit);

/// Lines over a connection that never block. The other end may be anybody: what it sends is
/// bounded.
class LineSocket {
 public:
  explicit LineSocket(UniqueFd socket);

  int fd() const { return socket_.get(); }
  /// Sends what the connection takes now and keeps the rest. Line ends within `line` become blanks.
  void send(std::string_view line);
  void send_rest();
  bool has_rest() const { return !outbox_.empty(); }
  /// Whole lines that have come.
  std::vector<std::string> receive();
  /// The other end has closed, or the connection broke, or a line was too long.
  bool is_closed() const { return closed_; }
  /// Says that nothing more will be sent; what the connection has not taken yet is dropped.
  void finish_sending();
  /// Reads and drops what comes until the other end has closed too. A connection that is closed
  /// with unread lines would take back what was sent last.
  void await_end(std::chrono::milliseconds limit);

 private:
  UniqueFd socket_;
  std::string inbox_;
  std::string outbox_;
  bool closed_ = false;
};

}  // namespace lerobot::distributed
