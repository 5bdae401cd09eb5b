#!/usr/bin/env php
<?php
// A worker on a queue of your own: docs/queue.md. It needs php-cli, which has pcntl, and no package.
define('QUEUE', rtrim(getenv('QUEUE_URL') ?: 'http://127.0.0.1:8080', '/') . '/v1/queues/' . (getenv('QUEUE') ?: 'mail'));
// Seconds that a job may be held up when this process dies. PHP extends the lease between its own steps alone: let no single call, such as
// a query, take that long.
define('LEASE', (int) (getenv('LEASE') ?: 60));

$jobs = [
    'letter' => function (array $args) { // a job may come again, after a crash or a pause that was too long
        for ($end = microtime(true) + ($args['seconds'] ?? 0); microtime(true) < $end;) {
            usleep(10000); // a signal ends it
        }
        if (empty($args['to'])) {
            throw new Exception('a letter to nobody');
        }
        echo "sent {$args['to']}\n";
    },
];

/** Returns how long to wait: Retry-After is seconds or a date, and from 1 to 60 seconds here. */
function pauseOf(string $header): float
{
    if (!preg_match('/^Retry-After:\s*(\S.*?)\s*$/mi', $header, $found)) {
        return 1;
    }
    $seconds = preg_match('/^-?\d{1,9}$/', $found[1]) ? (int) $found[1] : (strtotime($found[1]) ?: 0) - microtime(true);
    return min(max($seconds, 1), 60);
}

/** Returns the answer, and asks again until then. null: the lease is lost. */
function call(string $action, array $body, float $until): ?array
{
    for (;;) {
        $answer = @fopen(QUEUE . '/' . $action, 'r', false, stream_context_create(['http' => [
            'method' => 'POST', 'timeout' => 40, 'ignore_errors' => true, 'follow_location' => 0,
            'content' => json_encode($body, JSON_INVALID_UTF8_SUBSTITUTE | JSON_THROW_ON_ERROR),
            'header' => ['Content-Type: application/json', 'Authorization: Bearer ' . getenv('QUEUE_TOKEN')],
        ]]));
        $header = $answer ? implode("\n", stream_get_meta_data($answer)['wrapper_data'] ?? []) : '';
        $text = $answer ? (string) stream_get_contents($answer) : '';
        $status = preg_match('#^HTTP/\S+ (\d+)#', $header, $found) ? (int) $found[1] : 0;
        $decoded = $status === 200 ? json_decode($text, true) : null;
        if ($decoded !== null) {
            return $decoded;
        }
        if ($status === 409) {
            return null;
        }
        fwrite(STDERR, "$action: " . ($status ? "$status " . substr($text, 0, 1000) : 'no answer') . "\n");
        if ($status >= 300 && $status < 500 && !in_array($status, [408, 429], true)) { // no repetition would help
            exit(1);
        }
        $pause = pauseOf($header); // also after no answer, or half of an answer
        if (microtime(true) + $pause > $until) {
            return null;
        }
        for ($end = microtime(true) + $pause; microtime(true) < $end;) {
            usleep(10000);
        }
    }
}

pcntl_async_signals(true);
$stopping = false;
while (!$stopping) {
    pcntl_signal(SIGTERM, SIG_DFL); // while it waits it may be stopped at any time
    ['tasks' => $tasks, 'lease_token' => $token] = call('claim', ['max' => 10, 'wait' => '30s', 'lease' => LEASE . 's'], INF) + ['lease_token' => ''];
    pcntl_signal(SIGTERM, function () use (&$stopping) { $stopping = true; });
    $lost = false;
    $ends = microtime(true) + LEASE;
    pcntl_signal(SIGALRM, function () use ($token, &$lost, &$ends) { // extends the lease while jobs take long, and says when it is lost
        $lost = $lost || call('extend', ['lease_token' => $token, 'lease' => LEASE . 's'], $ends) === null;
        $ends = microtime(true) + LEASE;
        pcntl_alarm($lost ? 0 : max(1, intdiv(LEASE, 3)));
    });
    pcntl_alarm($tasks ? max(1, intdiv(LEASE, 3)) : 0);
    foreach ($tasks as $place => $task) {
        $end = ['lease_token' => $token];
        if ($stopping) {
            $end['released'] = array_column(array_slice($tasks, $place), 'id');
        } elseif (!isset($jobs[$task['type']])) {
            $end['failed'] = [['id' => $task['id'], 'error' => 'no such type of job', 'permanent' => true]];
        } else {
            try {
                $jobs[$task['type']]((array) $task['args']);
                $end['done'] = [$task['id']];
            } catch (Throwable $error) {
                $end['failed'] = [['id' => $task['id'], 'error' => substr(get_class($error) . ': ' . $error->getMessage(), 0, 1000)]];
            }
        }
        if ($lost || call('finish', $end, microtime(true) + LEASE) === null || isset($end['released'])) {
            break;
        }
    }
    pcntl_alarm(0);
}
