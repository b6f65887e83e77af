// SQLite's C interface: owners of its handles, and its failures as Errors.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <sqlite3.h>

#include "lerobot/base/error.h"

namespace lerobot::train {

/// Throws Error that names the database and says what SQLite's last failure means to a user.
[[noreturn]] void fail_sqlite(sqlite3* connection);
/// The same about a database that could not be opened.
[[noreturn]] void fail_sqlite(sqlite3* connection, const std::string& file);

/// Runs statements that return nothing of interest. Throws Error.
void execute(sqlite3* connection, const char* statements);

/// A prepared statement, numbered parameters from 1 and columns from 0.
class Statement {
 public:
  Statement(sqlite3* connection, const char* sql);

  Statement& bind(int parameter, std::string_view text);
  Statement& bind(int parameter, std::int64_t number);
  Statement& bind_blob(int parameter, std::string_view bytes);

  /// True when there is a row to look at.
  bool step();
  /// To be bound and stepped again.
  void reset();

  /// Text or the bytes of a blob; nothing for NULL.
  std::optional<std::string> text(int column) const;
  std::int64_t integer(int column) const;

 private:
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const { ::sqlite3_finalize(statement); }
  };
  void check(int result);

  sqlite3* connection_;
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
};

/// A transaction that writes, from its first moment: in WAL mode one that reads first is refused,
/// however patient, when somebody else has written meanwhile. Rolled back unless it is committed.
class WriteTransaction {
 public:
  explicit WriteTransaction(sqlite3* connection);
  WriteTransaction(const WriteTransaction&) = delete;
  WriteTransaction& operator=(const WriteTransaction&) = delete;
  ~WriteTransaction();

  void commit();

 private:
  sqlite3* connection_;
  bool open_ = true;
};

}  // namespace lerobot::train
