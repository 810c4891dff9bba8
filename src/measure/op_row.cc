#include "measure/op_row.h"

#include <fmt/format.h>

#include "measure/statistics.h"

namespace nibble::measure {

std::string OpRow::name() const {
  return fmt::format("{} {} m={} n={} k={}, {}, {} thread{}", is_gemv() ? "gemv" : "gemm", format, m, shape.n, shape.k,
                     machine.is_cpu() ? machine.isa : machine.backend, machine.threads,
                     machine.threads == 1 ? "" : "s");
}

Json OpRow::to_json(const OpLimits& limits) const {
  const double s = median(seconds);
  const double achieved = rate(s);
  const double limit = !machine.is_cpu() ? 0
                       : is_gemv()       ? limits.best_read(machine.threads, limit_bytes)
                                         : limits.best_integer(machine);
  Json json = {{"op", is_gemv() ? "gemv" : "gemm"},
               {"format", format},
               {"m", m},
               {"n", shape.n},
               {"k", shape.k},
               {"backend", machine.backend},
               {"isa", machine.isa},
               {"threads", machine.threads},
               {"data", data},
               {"repetitions", seconds.size()},
               {"samples_s", seconds},
               {"median_s", s},
               {"cv", population_cv(seconds)},
               {"bytes", bytes},
               {"ops", ops()},
               {"limit_kind", is_gemv() ? "read_gb_per_s" : "int16_gop_per_s"},
               {"achieved", achieved},
               {"limit", limit > 0 ? Json(limit) : Json()},
               {"share", limit > 0 ? Json(achieved / limit) : Json()},
               {"digest", digest}};
  if (m_asked > m) json["m_asked"] = m_asked;
  if (!peer.empty()) add_peer(json);
  return json;
}

void OpRow::add_peer(Json& json) const {
  const double s = median(peer_seconds);
  json["peer"] = {{"peer", "ggml"},
                  {"description", peer},
                  {"samples_s", peer_seconds},
                  {"median_s", s},
                  {"cv", population_cv(peer_seconds)},
                  {"achieved", rate(s)}};
  const Ratio ratio = ratio_of_medians(peer_seconds, seconds);
  json["speed_over_peer"] = {{"ratio", ratio.value}, {"low", ratio.low}, {"high", ratio.high}};
}

}  // namespace nibble::measure
