#!/usr/bin/env ruby
# A worker on a queue of your own: docs/queue-by-http.md. It needs Ruby's standard library only.
require "json"
require "net/http"

QUEUE = ENV.fetch("QUEUE_URL", "http://127.0.0.1:8080").chomp("/") + "/v1/queues/" + ENV.fetch("QUEUE", "mail")
HEADERS = { "Content-Type" => "application/json", "Authorization" => "Bearer #{ENV["QUEUE_TOKEN"]}" }
LEASE = ENV.fetch("LEASE", "60").to_i # seconds that a job may be held up when this process dies
$stdout.sync = true

JOBS = {
  "letter" => lambda { |args| # a job may come again, after a crash or a pause that was too long
    sleep(args.fetch("seconds", 0))
    raise "a letter to nobody" if args["to"].to_s.empty?
    puts "sent #{args["to"]}"
  },
}

def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)

# Returns the answer, which it awaits until then; nil: the lease is lost.
def call(action, body, till)
  uri = URI("#{QUEUE}/#{action}")
  loop do
    pause = 1.0
    begin
      answer = Net::HTTP.start(uri.host, uri.port, use_ssl: uri.scheme == "https", read_timeout: 40, max_retries: 0) { |http| http.post(uri.path, body.to_json, HEADERS) }
      status = answer.code.to_i
      return JSON.parse(answer.body) if status == 200
      return nil if status == 409
      abort "#{action}: #{answer.body}" if status < 500 && status != 429
      pause = (answer["Retry-After"] || 1).to_f
    rescue SystemCallError, IOError, Timeout::Error, Net::ProtocolError, SocketError, JSON::ParserError => error # no answer, or half of one: ask again
      warn "#{action}: #{error.message}"
    end
    return nil if now + pause > till
    sleep(pause)
  end
end

stopping = false
until stopping
  trap("TERM", "SYSTEM_DEFAULT") # while it waits it may be stopped at any time
  batch = call("claim", { max: 10, wait: "30s", lease: "#{LEASE}s" }, Float::INFINITY)
  trap("TERM") { stopping = true }
  token, tasks = batch["lease_token"], batch["tasks"]
  keeper = Thread.new do # extends the lease while jobs take long
    loop do
      sleep(LEASE / 3.0)
      call("extend", { lease_token: token, lease: "#{LEASE}s" }, now + LEASE / 3.0)
    end
  end
  tasks.each_with_index do |task, place|
    ending = { lease_token: token }
    if stopping
      ending[:back] = tasks.drop(place).map { |other| other["id"] }
    elsif !JOBS.key?(task["type"])
      ending[:failed] = [{ id: task["id"], error: "no such type of job", permanent: true }]
    else
      begin
        JOBS[task["type"]].call(task["args"])
        ending[:done] = [task["id"]]
      rescue StandardError => error
        ending[:failed] = [{ id: task["id"], error: error.full_message(highlight: false).dup.force_encoding("UTF-8").scrub[0, 1000] }]
      end
    end
    break if call("finish", ending, now + LEASE).nil? || ending.key?(:back)
  end
  keeper.kill
end
