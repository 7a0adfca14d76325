import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AccessControlEntryFilter;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourcePatternFilter;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/**
 * Kafka's StandardAuthorizer, asked about many sets of ACLs. The first argument is `super.users`. A line of JSON in, with the codes of the protocol:
 * {"default": bool, "loaded": [acl], "added": [acl], "removed": [acl], "questions": [[principal, address, operation, type, name]], "filter": filter}
 * where an ACL and a filter are [type, pattern, name, principal, host, operation, permission]. Snapshot, additions and removals follow each other.
 * A line out: {"verdicts": [bool], "any": [bool], "found": [acl]}. `any` is authorizeByResourceType.
 */
public final class Verdicts {
    private record Asker(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        @Override public String listenerName() { return "INTERNAL"; }
        @Override public SecurityProtocol securityProtocol() { return SecurityProtocol.SASL_PLAINTEXT; }
        @Override public int requestType() { return 3; }
        @Override public int requestVersion() { return 9; }
        @Override public String clientId() { return "verdicts"; }
        @Override public int correlationId() { return 1; }
    }

    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        Map<Boolean, StandardAuthorizer> authorizers = Map.of(true, authorizer(args[0], true), false, authorizer(args[0], false));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode set = JSON.readTree(line);
            answers.println(JSON.writeValueAsString(answer(authorizers.get(set.get("default").asBoolean()), set)));
        }
        answers.flush();
        System.exit(0); // the authorizer's metrics have threads
    }

    private static StandardAuthorizer authorizer(String superUsers, boolean allowed) {
        StandardAuthorizer made = new StandardAuthorizer();
        made.configure(Map.of(
            "node.id", 1, StandardAuthorizer.SUPER_USERS_CONFIG, superUsers, StandardAuthorizer.ALLOW_EVERYONE_IF_NO_ACL_IS_FOUND_CONFIG, allowed));
        made.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
        made.completeInitialLoad();
        return made;
    }

    private static ObjectNode answer(StandardAuthorizer authorizer, JsonNode set) throws Exception {
        Map<StandardAcl, Uuid> ids = new HashMap<>();
        authorizer.loadSnapshot(Map.of());
        Map<Uuid, StandardAcl> snapshot = new HashMap<>();
        set.get("loaded").forEach(each -> snapshot.put(id(ids, acl(each)), acl(each)));
        authorizer.loadSnapshot(snapshot);
        set.get("added").forEach(each -> authorizer.addAcl(id(ids, acl(each)), acl(each)));
        set.get("removed").forEach(each -> authorizer.removeAcl(id(ids, acl(each))));
        ObjectNode answer = JSON.createObjectNode();
        ArrayNode verdicts = answer.putArray("verdicts"), any = answer.putArray("any"), found = answer.putArray("found");
        for (JsonNode question : set.get("questions")) {
            Asker asker = new Asker(SecurityUtils.parseKafkaPrincipal(question.get(0).asText()), InetAddress.getByName(question.get(1).asText()));
            AclOperation operation = AclOperation.fromCode((byte) question.get(2).asInt());
            ResourceType type = ResourceType.fromCode((byte) question.get(3).asInt());
            ResourcePattern resource = new ResourcePattern(type, question.get(4).asText(), PatternType.LITERAL);
            verdicts.add(allowed(authorizer.authorize(asker, List.of(new Action(operation, resource, 1, true, true))).get(0)));
            any.add(allowed(authorizer.authorizeByResourceType(asker, operation, type)));
        }
        authorizer.acls(filter(set.get("filter"))).forEach(binding -> found.add(codes(binding)));
        return answer;
    }

    private static boolean allowed(AuthorizationResult result) {
        return result == AuthorizationResult.ALLOWED;
    }

    private static Uuid id(Map<StandardAcl, Uuid> ids, StandardAcl acl) {
        return ids.computeIfAbsent(acl, unused -> Uuid.randomUuid());
    }

    private static StandardAcl acl(JsonNode codes) {
        return new StandardAcl(
            ResourceType.fromCode((byte) codes.get(0).asInt()), codes.get(2).asText(), PatternType.fromCode((byte) codes.get(1).asInt()),
            codes.get(3).asText(), codes.get(4).asText(),
            AclOperation.fromCode((byte) codes.get(5).asInt()), AclPermissionType.fromCode((byte) codes.get(6).asInt()));
    }

    private static AclBindingFilter filter(JsonNode codes) {
        ResourcePatternFilter pattern = new ResourcePatternFilter(
            ResourceType.fromCode((byte) codes.get(0).asInt()), codes.get(2).textValue(), PatternType.fromCode((byte) codes.get(1).asInt()));
        AccessControlEntryFilter entry = new AccessControlEntryFilter(
            codes.get(3).textValue(), codes.get(4).textValue(),
            AclOperation.fromCode((byte) codes.get(5).asInt()), AclPermissionType.fromCode((byte) codes.get(6).asInt()));
        return new AclBindingFilter(pattern, entry);
    }

    private static ArrayNode codes(AclBinding binding) {
        return JSON.createArrayNode()
            .add(binding.pattern().resourceType().code()).add(binding.pattern().patternType().code()).add(binding.pattern().name())
            .add(binding.entry().principal()).add(binding.entry().host())
            .add(binding.entry().operation().code()).add(binding.entry().permissionType().code());
    }
}
