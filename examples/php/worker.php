#!/usr/bin/env php
<?php
// A worker on a queue of your own: docs/queue-by-http.md. It needs php-cli, which has pcntl, and no package.
define('QUEUE', rtrim(getenv('QUEUE_URL') ?: 'http://127.0.0.1:8080', '/') . '/v1/queues/' . (getenv('QUEUE') ?: 'mail'));
// Seconds that a job may be held up when this process dies. PHP extends the lease between its own steps alone, so let no single call,
// such as a query, take that long.
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

/** Returns the answer, which it awaits until then; null: the lease is lost. */
function call(string $action, array $body, float $until): ?array
{
    for (;;) {
        $http_response_header = [];
        $answer = @file_get_contents(QUEUE . '/' . $action, false, stream_context_create(['http' => [
            'method' => 'POST', 'timeout' => 40, 'ignore_errors' => true, 'content' => json_encode($body, JSON_INVALID_UTF8_SUBSTITUTE | JSON_THROW_ON_ERROR),
            'header' => ['Content-Type: application/json', 'Authorization: Bearer ' . getenv('QUEUE_TOKEN')],
        ]]));
        $header = implode("\n", $http_response_header);
        $status = preg_match('#^HTTP/\S+ (\d+)#', $header, $found) ? (int) $found[1] : 0;
        $decoded = $status === 200 ? json_decode((string) $answer, true) : null;
        if ($decoded !== null) {
            return $decoded;
        }
        if ($status === 409) {
            return null;
        }
        if ($status >= 300 && $status < 500 && $status !== 429) {
            fwrite(STDERR, "$action: $answer\n");
            exit(1);
        }
        fwrite(STDERR, "$action: " . ($status ? "status $status" : 'no answer') . "\n");
        $pause = preg_match('/^Retry-After: (\d+)/mi', $header, $found) ? (int) $found[1] : 1; // also where there is no answer, or half of one
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
    pcntl_signal(SIGALRM, function () use ($token) { // extends the lease while jobs take long
        call('extend', ['lease_token' => $token, 'lease' => LEASE . 's'], microtime(true) + LEASE / 3);
        pcntl_alarm(max(1, intdiv(LEASE, 3)));
    });
    pcntl_alarm($tasks ? max(1, intdiv(LEASE, 3)) : 0);
    foreach ($tasks as $place => $task) {
        $end = ['lease_token' => $token];
        if ($stopping) {
            $end['back'] = array_column(array_slice($tasks, $place), 'id');
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
        if (call('finish', $end, microtime(true) + LEASE) === null || isset($end['back'])) {
            break;
        }
    }
    pcntl_alarm(0);
}
