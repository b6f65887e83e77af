#include "lerobot/train/tracking/sqlite.h"

namespace lerobot::train {
namespace {

/// What stands behind a result code, beside SQLite's own words.
const char* meaning_of(int code) {
  switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return "another process keeps the database locked";
    case SQLITE_FULL:
      return "there is no space left for the database";
    case SQLITE_NOTADB:
    case SQLITE_CORRUPT:
      return "the file is damaged, or no database: move it away, and a new one is made";
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return "the database can't be opened for writing: see that its folder and files are yours";
    case SQLITE_IOERR:
      return "the database can't be read or written";
    default:
      return "the database refuses";
  }
}

}  // namespace

void fail_sqlite(sqlite3* connection, const std::string& file) {
  const int code = ::sqlite3_extended_errcode(connection);
  const int error_number = ::sqlite3_system_errno(connection);
  std::string details = ::sqlite3_errmsg(connection);
  // Of a failed opening the number belongs to whatever SQLite has tried last.
  if ((code & 0xff) == SQLITE_IOERR && error_number != 0)
    details += ": " + system_error_text(error_number);
  fail("{}: {} ({})", file, meaning_of(code), details);
}

void fail_sqlite(sqlite3* connection) {
  fail_sqlite(connection, ::sqlite3_db_filename(connection, "main"));
}

void execute(sqlite3* connection, const char* statements) {
  if (::sqlite3_exec(connection, statements, nullptr, nullptr, nullptr) != SQLITE_OK)
    fail_sqlite(connection);
}

Statement::Statement(sqlite3* connection, const char* sql) : connection_(connection) {
  sqlite3_stmt* statement = nullptr;
  check(::sqlite3_prepare_v2(connection, sql, -1, &statement, nullptr));
  statement_.reset(statement);
}

Statement& Statement::bind(int parameter, std::string_view text) {
  check(::sqlite3_bind_text64(statement_.get(), parameter, text.data(), text.size(),
                              SQLITE_TRANSIENT, SQLITE_UTF8));
  return *this;
}

Statement& Statement::bind(int parameter, std::int64_t number) {
  check(::sqlite3_bind_int64(statement_.get(), parameter, number));
  return *this;
}

Statement& Statement::bind_blob(int parameter, std::string_view bytes) {
  check(::sqlite3_bind_blob64(statement_.get(), parameter, bytes.data(), bytes.size(),
                              SQLITE_TRANSIENT));
  return *this;
}

bool Statement::step() {
  const int result = ::sqlite3_step(statement_.get());
  if (result == SQLITE_ROW) return true;
  if (result != SQLITE_DONE) fail_sqlite(connection_);
  return false;
}

void Statement::reset() { check(::sqlite3_reset(statement_.get())); }

std::optional<std::string> Statement::text(int column) const {
  if (::sqlite3_column_type(statement_.get(), column) == SQLITE_NULL) return std::nullopt;
  const void* const bytes = ::sqlite3_column_blob(statement_.get(), column);
  const int size = ::sqlite3_column_bytes(statement_.get(), column);
  return std::string(static_cast<const char*>(bytes), static_cast<std::size_t>(size));
}

std::int64_t Statement::integer(int column) const {
  return ::sqlite3_column_int64(statement_.get(), column);
}

void Statement::check(int result) {
  if (result != SQLITE_OK) fail_sqlite(connection_);
}

WriteTransaction::WriteTransaction(sqlite3* connection) : connection_(connection) {
  execute(connection, "BEGIN IMMEDIATE");
}

WriteTransaction::~WriteTransaction() {
  // After some failures SQLite has done it already.
  if (open_) (void)::sqlite3_exec(connection_, "ROLLBACK", nullptr, nullptr, nullptr);
}

void WriteTransaction::commit() {
  execute(connection_, "COMMIT");
  open_ = false;
}

}  // namespace lerobot::train
