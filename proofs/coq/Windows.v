(* The meeting lemma for windows of time.

   Some words are hubs: a task t may need that the tasks deps t have been absorbed by
   its hub (a score that was formed earlier).  Cut the execution into windows of L
   arrivals of words that are not hubs.  A window sees at most M + L of these.  If the
   hub of t neither was in fast memory when the window began nor was loaded in it, then
   all the inputs that t and deps t need are seen in one window, and they meet there.

   A window that begins with h hubs in fast memory sees at most M - h + L other words,
   so hubs kept across a boundary are paid for by the arrivals of the whole window.

   window_meeting: for every valid execution, and any lambda <= L, there are a list paid
   of pairs of words, a list far of hubs, and numbers with
     length paid + lambda length far
       <= (M + L - 1) arrivals + lambda reloads + lambda M,
     arrivals + reloads <= traffic,
   such that for every task t saved in w paid holds all pairs of words needed by t and
   deps t together that are inputs or w; or hub_of t is in far, and paid holds the pairs
   of words needed by t, and by each of deps t, by itself.
   A load pays for its arrival; a word made anew arrives only if it is stored before
   it is dropped, and that store pays.  Source: derived here. *)
From Coq Require Import Arith Lia List.
From iosim Require Import Lists Machine Meeting.
Import ListNotations.

Section Windows.
Context {X : model}.
Notation word := (word X).
Notation task := (task X).
Notation event := (event X).
Notation state := (state X).
Variables M L lambda : nat.
Variable hub : word -> bool.
Variable hub_of : task -> word.
Variable deps : task -> list task.
Hypothesis L_positive : 0 < L.
Hypothesis lambda_small : lambda <= L.
Hypothesis hubs_made : forall w, hub w = true -> input w = false.
Hypothesis outs_needed : forall t : task, incl (outs t) (needs t).
Hypothesis deps_ready : forall (t : task) c, ready t c -> forall t', In t' (deps t) ->
  hub (hub_of t) = true /\ In t' (c (hub_of t)).

Definition same : forall x y : word, {x = y} + {x <> y} := word_dec X.
Definition hub_in (w : word) : list word := if hub w then [w] else [].

(* Looking ahead: w is stored before it is dropped or made anew. *)
Fixpoint useful (w : word) (es : list event) : bool :=
  match es with
  | [] => false
  | (Store x | Add x) :: es => if same x w then true else useful w es
  | (New x | Drop x) :: es => if same x w then false else useful w es
  | (Load _ | Do _) :: es => useful w es
  end.

(* The words that count: inputs, and made words that will be stored; no hubs. *)
Definition relevant (es : list event) (w : word) : bool :=
  if hub w then false else if input w then true else useful w es.

(* The pairs of t that count for its copy in w have met. *)
Definition met_by_task (paid : list (word * word)) (t : task) (w : word) : Prop :=
  forall x y, In x (flat_map needs (t :: deps t)) -> In y (flat_map needs (t :: deps t)) -> x <> y ->
  (input x = true \/ x = w) -> (input y = true \/ y = w) -> met paid x y.

(* The same when hub_of t was given up: t by itself, and each of deps t by itself. *)
Definition inputs_met (paid : list (word * word)) (t : task) : Prop :=
  forall x y, In x (needs t) -> In y (needs t) -> x <> y ->
  input x = true -> input y = true -> met paid x y.
Definition met_apart (paid : list (word * word)) (t : task) (w : word) : Prop :=
  (forall x y, In x (needs t) -> In y (needs t) -> x <> y ->
   (input x = true \/ x = w) -> (input y = true \/ y = w) -> met paid x y) /\
  (forall t', In t' (deps t) -> inputs_met paid t').

(* In state s, with the events es still to come: the present window began with h hubs
   in fast memory, has had r arrivals and has seen the words in seen; far holds the
   hubs given up, spent words have been loaded or stored, and the words in debt have
   arrived and are still to be stored. *)
Record window (s : state) (es : list event) (h r arrivals reloads spent : nat)
    (seen far : list word) (paid : list (word * word)) (debt : list word) : Prop := {
  w_count : r <= L /\ h <= M;
  w_spent : arrivals + reloads <= spent + length debt;
  w_debt : NoDup debt /\ forall w, In w debt -> In w (fast s) /\ useful w es = true;
  w_seen : NoDup seen /\ length seen + h <= M + r;
  w_fast : forall w, In w (fast s) -> relevant es w = true -> In w seen;
  w_size : length (fast s) <= M /\ NoDup (fast s);
  w_met : forall x y, In x seen -> In y seen -> x <> y -> met paid x y;
  w_paid : length paid + lambda * length far + h * r
           <= (M + L - 1) * arrivals + lambda * reloads + lambda * h;
  w_hub : forall b t, hub b = true -> In t (content s b) ->
    In b far \/ (In b (fast s) /\ forall x, In x (needs t) -> input x = true -> In x seen);
  w_hub_met : forall b t, hub b = true -> In t (content s b) \/ In t (saved s b) ->
    inputs_met paid t;
  w_absorbed : forall w t, hub w = false ->
    (In t (content s w) /\ useful w es = true) \/ In t (saved s w) ->
    (In (hub_of t) far /\ met_apart paid t w) \/ met_by_task paid t w
}.

Lemma in_hub_in h : hub h = true -> In h (hub_in h).
Proof. unfold hub_in. intros ->. now left. Qed.

(* Relevant words and hubs of a list are disjoint parts of it. *)
Lemma parts_length es f :
  length (filter (relevant es) f) + length (flat_map hub_in f) <= length f.
Proof.
  induction f as [| w f IH]; cbn; [ lia | ]. unfold hub_in at 1, relevant at 1.
  destruct (hub w); cbn; [ lia | ]. destruct (if input w then true else useful w es); cbn; lia.
Qed.

(* A new window begins: what was seen is forgotten but for what is in fast memory. *)
Lemma window_restart s es h arrivals reloads spent seen far paid debt :
  window s es h L arrivals reloads spent seen far paid debt ->
  window s es (length (flat_map hub_in (fast s))) 0 arrivals reloads spent
    (filter (relevant es) (fast s)) (flat_map hub_in (fast s) ++ far) paid debt.
Proof.
  intros [[C1 C2] Sp De [S1 S2] F [Z1 Z2] Me P Hu Hm Ab].
  pose proof (parts_length es (fast s)) as Pl. split; auto.
  - lia.
  - split; [ now apply NoDup_filter | lia ].
  - intros w Hw Hr. apply filter_In. auto.
  - intros x y Hx Hy. apply filter_In in Hx as [Hx Hx'], Hy as [Hy Hy']. auto.
  - rewrite app_length, Nat.mul_add_distr_l, Nat.mul_0_r.
    assert (lambda * h <= L * h) by (apply Nat.mul_le_mono_r; exact lambda_small). lia.
  - intros b t Hb H. left. apply in_or_app.
    destruct (Hu b t Hb H) as [? | [Hf _]]; [ now right | left ].
    apply in_flat_map. exists b. split; [ exact Hf | now apply in_hub_in ].
  - intros w t Hw H. destruct (Ab w t Hw H) as [[? ?] | ?]; [ left | now right ].
    split; [ apply in_or_app; now right | assumption ].
Qed.

Lemma met_incl (paid paid' : list (word * word)) x y : incl paid paid' -> met paid x y -> met paid' x y.
Proof. intros I [H | H]; [ left | right ]; auto. Qed.

Lemma inputs_met_incl paid paid' t : incl paid paid' -> inputs_met paid t -> inputs_met paid' t.
Proof. intros I H x y Hx Hy N Ix Iy. apply (met_incl paid); auto. Qed.

Lemma met_apart_incl paid paid' t w : incl paid paid' -> met_apart paid t w -> met_apart paid' t w.
Proof.
  intros I [H1 H2]. split.
  - intros x y Hx Hy N Ix Iy. apply (met_incl paid); auto.
  - intros t' Ht'. apply (inputs_met_incl paid); auto.
Qed.

Lemma met_by_task_incl paid paid' t w :
  incl paid paid' -> met_by_task paid t w -> met_by_task paid' t w.
Proof. intros I H x y Hx Hy N Ix Iy. apply (met_incl paid); auto. Qed.

(* What the words had absorbed before the event. *)
Definition absorbed_before (s s' : state) (e : event) (es : list event) : Prop :=
  (forall w t, hub w = false ->
    (In t (content s' w) /\ useful w es = true) \/ In t (saved s' w) ->
    (In t (content s w) /\ useful w (e :: es) = true) \/ In t (saved s w)) /\
  (forall w t, In t (content s' w) \/ In t (saved s' w) -> In t (content s w) \/ In t (saved s w)).

(* An event that brings in no relevant word. *)
Lemma window_quiet s s' e es h r arrivals reloads spent seen far paid debt
    reloads' spent' far' debt' :
  window s (e :: es) h r arrivals reloads spent seen far paid debt ->
  length (fast s') <= M -> NoDup (fast s') ->
  (forall w, In w (fast s') -> relevant es w = true -> In w (fast s) /\ relevant (e :: es) w = true) ->
  (forall b t, hub b = true -> In t (content s' b) -> In b far' \/
     In t (content s b) /\ (In b (fast s) -> In b (fast s'))) ->
  absorbed_before s s' e es ->
  incl far far' -> length far' + reloads <= length far + reloads' ->
  arrivals + reloads' <= spent' + length debt' -> NoDup debt' ->
  (forall w, In w debt' -> In w (fast s') /\ useful w es = true) ->
  window s' es h r arrivals reloads' spent' seen far' paid debt'.
Proof.
  intros [[C1 C2] Sp De [S1 S2] F [Z1 Z2] Me P Hu Hm Ab] HM HN Hf Hs [Ha Hb] If Hl Hd ND HD.
  split; auto.
  - intros w Hw Hr. apply F; now apply Hf.
  - apply (Nat.mul_le_mono_l _ _ lambda) in Hl. lia.
  - intros b t Hh H. destruct (Hs b t Hh H) as [? | [H1 H2]]; [ now left | ].
    destruct (Hu b t Hh H1) as [? | [? ?]]; [ left; auto | right; auto ].
  - intros b t Hh H. apply (Hm b t Hh). now apply Hb.
  - intros w t Hw H. destruct (Ab w t Hw (Ha w t Hw H)) as [[? ?] | ?]; [ left; auto | now right ].
Qed.

(* A relevant word w arrives, by Load or New. *)
Lemma window_arrive s s' e es h r arrivals reloads spent seen far paid debt w spent' debt' :
  window s (e :: es) h r arrivals reloads spent seen far paid debt ->
  fast s' = w :: fast s -> ~ In w (fast s) -> length (fast s') <= M -> relevant es w = true ->
  (forall x, x <> w -> useful x (e :: es) = useful x es) ->
  (forall b, hub b = true -> content s' b = content s b) ->
  absorbed_before s s' e es ->
  S arrivals + reloads <= spent' + length debt' -> NoDup debt' ->
  (forall x, In x debt' -> In x (fast s') /\ useful x es = true) ->
  exists h' r' seen' far' paid',
    window s' es h' r' (S arrivals) reloads spent' seen' far' paid' debt'.
Proof.
  intros W E Hw HM Hrel Hu Ec [Ha Ha'] Hd ND HD.
  assert (Hrl : forall x, In x (fast s) -> relevant es x = true -> relevant (e :: es) x = true).
  { intros x Hx. unfold relevant. destruct (hub x), (input x); trivial.
    rewrite Hu; [ trivial | ]. intros ->. contradiction. }
  (* when w was not among the words seen, and there is room for an arrival *)
  assert (K : forall h r seen far, window s (e :: es) h r arrivals reloads spent seen far paid debt ->
    r < L -> ~ In w seen ->
    window s' es h (S r) (S arrivals) reloads spent' (w :: seen) far (paid ++ meets w seen) debt').
  { clear W h r seen far. intros h r seen far [[C1 C2] Sp De [S1 S2] F [Z1 Z2] Me P Hb Hm Ab] Hr Hs.
    assert (Ip : incl paid (paid ++ meets w seen)) by apply incl_appl, incl_refl.
    split; auto.
    - split; [ now constructor | cbn; lia ].
    - rewrite E. intros x [<- | Hx] Hx'; [ now left | right; auto ].
    - split; [ exact HM | ]. rewrite E. now constructor.
    - intros x y [<- | Hx] [<- | Hy] Hxy; rewrite met_app; [ congruence | | | ].
      + right. now apply meets_met.
      + right. destruct (meets_met w seen x Hx); [ now right | now left ].
      + left. auto.
    - rewrite app_length. unfold meets. rewrite map_length. lia.
    - intros b t Hh H. rewrite Ec in H by exact Hh.
      destruct (Hb b t Hh H) as [? | [Hf Hx]]; [ now left | right ].
      rewrite E. split; [ now right | ]. intros x Hx' Hi. right. auto.
    - intros b t Hh H. apply (inputs_met_incl paid); [ exact Ip | ]. apply (Hm b t Hh). now apply Ha'.
    - intros x t Hx H. destruct (Ab x t Hx (Ha x t Hx H)) as [[H1 H2] | H'].
      + left. split; [ exact H1 | now apply (met_apart_incl paid) ].
      + right. now apply (met_by_task_incl paid). }
  destruct (in_dec same w seen) as [Hs | Hs].
  - exists h, r, seen, far, paid.
    destruct W as [[C1 C2] Sp De [S1 S2] F [Z1 Z2] Me P Hb Hm Ab]. split; auto.
    + rewrite E. intros x [<- | Hx] Hx'; auto.
    + split; [ exact HM | ]. rewrite E. now constructor.
    + lia.
    + intros b t Hh H. rewrite Ec in H by exact Hh.
      destruct (Hb b t Hh H) as [? | [Hf Hx]]; [ now left | right ].
      rewrite E. split; [ now right | exact Hx ].
    + intros b t Hh H. apply (Hm b t Hh). now apply Ha'.
  - destruct (Nat.lt_ge_cases r L) as [Hr | Hr].
    + exists h, (S r), (w :: seen), far, (paid ++ meets w seen). now apply K.
    + assert (r = L) as -> by (pose proof (proj1 (w_count _ _ _ _ _ _ _ _ _ _ _ W)); lia).
      apply window_restart in W.
      exists (length (flat_map hub_in (fast s))), 1, (w :: filter (relevant (e :: es)) (fast s)),
        (flat_map hub_in (fast s) ++ far), (paid ++ meets w (filter (relevant (e :: es)) (fast s))).
      apply K; trivial. rewrite filter_In. tauto.
Qed.

Lemma relevant_hub es w : relevant es w = true -> hub w = false.
Proof. unfold relevant. destruct (hub w); congruence. Qed.

Lemma relevant_other (e : event) es w x : (forall x, x <> w -> useful x (e :: es) = useful x es) ->
  x <> w -> relevant (e :: es) x = relevant es x.
Proof. intros Hu N. unfold relevant. destruct (hub x), (input x); auto. Qed.

Lemma window_step s e es h r arrivals reloads spent seen far paid debt :
  window s (e :: es) h r arrivals reloads spent seen far paid debt ->
  allowed s e -> length (fast (step s e)) <= M ->
  exists h' r' arrivals' reloads' seen' far' paid' debt',
    window (step s e) es h' r' arrivals' reloads' (spent + (cost_load e + cost_store e))
      seen' far' paid' debt'.
Proof.
  intros W He HM.
  destruct (w_size _ _ _ _ _ _ _ _ _ _ _ W) as [Z1 Z2].
  destruct (w_debt _ _ _ _ _ _ _ _ _ _ _ W) as [ND HD].
  pose proof (w_spent _ _ _ _ _ _ _ _ _ _ _ W) as Sp.
  destruct e as [w | w | w | w | w | t]; cbn [cost_load cost_store].
  - (* Load *)
    assert (Ha : absorbed_before s (step s (Load w)) (Load w) es).
    { split; intros x t; destruct s as [f ct m]; cbn [step content saved useful];
        (destruct (same w x) as [-> | N];
         [ rewrite upd_same, in_app_iff | rewrite upd_other by exact N ]); tauto. }
    assert (Hs : forall b t, In t (content (step s (Load w)) b) -> w = b \/ In t (content s b)).
    { intros b t. destruct s as [f ct m]. cbn [step content].
      destruct (same w b) as [-> | N]; [ auto | ]. rewrite upd_other by exact N. auto. }
    assert (Hin : forall x, In x (fast s) -> In x (fast (step s (Load w)))).
    { destruct s as [f ct m]. intros x Hx. apply enter_In. now right. }
    (* a load that is no arrival *)
    assert (Q : (forall x, In x (fast (step s (Load w))) -> relevant es x = true -> In x (fast s)) ->
      NoDup (fast (step s (Load w))) ->
      window (step s (Load w)) es h r arrivals (reloads + length (hub_in w)) (spent + (1 + 0))
        seen (hub_in w ++ far) paid debt).
    { intros Hf HN. apply (window_quiet s _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ W); trivial.
      - intros x Hx Hr. split; [ now apply Hf | exact Hr ].
      - intros b t Hh H. destruct (Hs b t H) as [-> | H']; [ left | right; auto ].
        apply in_or_app. left. now apply in_hub_in.
      - apply incl_appr, incl_refl.
      - rewrite app_length. lia.
      - assert (length (hub_in w) <= 1) by (unfold hub_in; destruct (hub w); cbn; lia). lia.
      - intros x Hx. destruct (HD x Hx) as [H1 H2]. split; [ now apply Hin | exact H2 ]. }
    destruct (in_dec same w (fast s)) as [Hw | Hw].
    + assert (Ef : fast (step s (Load w)) = fast s).
      { destruct s as [f ct m]. cbn. unfold enter. destruct (in_dec _ w f); tauto. }
      do 8 eexists. apply Q; rewrite Ef; auto.
    + assert (Ef : fast (step s (Load w)) = w :: fast s).
      { destruct s as [f ct m]. cbn. unfold enter. destruct (in_dec _ w f); tauto. }
      destruct (relevant es w) eqn:Hrel.
      * destruct (window_arrive s (step s (Load w)) _ es _ _ _ _ _ _ _ _ _ w (spent + (1 + 0)) debt W)
          as (h' & r' & seen' & far' & paid' & W'); trivial.
        -- intros b Hh. destruct s as [f ct m]. cbn [step content]. apply upd_other.
           intros ->. apply relevant_hub in Hrel. congruence.
        -- lia.
        -- intros x Hx. destruct (HD x Hx) as [H1 H2]. split; [ now apply Hin | exact H2 ].
        -- exists h', r', (S arrivals), reloads, seen', far', paid', debt. exact W'.
      * do 8 eexists. apply Q; rewrite Ef.
        -- intros x [<- | Hx] Hr; [ congruence | exact Hx ].
        -- now constructor.
  - (* New *)
    destruct He as [Hw Hi].
    assert (Ef : fast (step s (New w)) = w :: fast s) by now destruct s.
    assert (Hu : forall x, x <> w -> useful x (New w :: es) = useful x es).
    { intros x Hx. cbn. destruct (same w x); congruence. }
    assert (Hd : forall x, In x debt -> In x (w :: fast s) /\ useful x es = true).
    { intros x Hx. destruct (HD x Hx) as [H1 H2]. split; [ now right | ].
      rewrite Hu in H2; [ exact H2 | ]. intros ->. contradiction. }
    assert (Ha : absorbed_before s (step s (New w)) (New w) es).
    { split; intros x t; destruct s as [f ct m]; cbn [step content saved];
        (destruct (same w x) as [-> | N]; [ rewrite upd_same; cbn; tauto | ]);
        rewrite upd_other by exact N; [ rewrite Hu by congruence | ]; tauto. }
    destruct (relevant es w) eqn:Hrel.
    + destruct (window_arrive s (step s (New w)) _ es _ _ _ _ _ _ _ _ _ w (spent + (0 + 0)) (w :: debt) W)
        as (h' & r' & seen' & far' & paid' & W'); trivial.
      * intros b Hh. destruct s as [f ct m]. cbn [step content]. apply upd_other.
        intros ->. apply relevant_hub in Hrel. congruence.
      * cbn. lia.
      * constructor; [ intros H; apply Hw; now apply HD | exact ND ].
      * rewrite Ef. intros x [<- | Hx]; [ | now apply Hd ]. split; [ now left | ].
        unfold relevant in Hrel. destruct (hub w); [ discriminate | ]. now rewrite Hi in Hrel.
      * exists h', r', (S arrivals), reloads, seen', far', paid', (w :: debt). exact W'.
    + exists h, r, arrivals, reloads, seen, far, paid, debt.
      apply (window_quiet s _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ W); rewrite ?Ef; trivial.
      * now rewrite <- Ef.
      * now constructor.
      * intros x [<- | Hx] Hr; [ congruence | ]. split; [ exact Hx | ].
        rewrite (relevant_other _ _ w); trivial. intros ->. contradiction.
      * intros b t Hh. destruct s as [f ct m]. cbn [step content fast].
        destruct (same w b) as [-> | N].
        -- rewrite upd_same. intros [].
        -- rewrite upd_other by exact N. cbn. auto.
      * apply incl_refl.
      * lia.
  - (* Store *)
    exists h, r, arrivals, reloads, seen, far, paid, (remove same w debt).
    destruct s as [f ct m]. cbn [step fast] in *.
    apply (window_quiet _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ W); cbn [step fast content saved]; trivial.
    + intros x Hx. split; [ exact Hx | ]. unfold relevant in *. cbn [useful].
      destruct (hub x), (input x), (same w x); auto.
    + auto.
    + split; intros x t; cbn [useful step content saved];
        (destruct (same w x) as [-> | N]; [ rewrite upd_same | rewrite upd_other by exact N ]); tauto.
    + apply incl_refl.
    + pose proof (remove_length same w debt ND). lia.
    + now apply remove_NoDup.
    + intros x Hx. apply in_remove in Hx as [Hx Hxw]. destruct (HD x Hx) as [H1 H2].
      split; [ exact H1 | ]. cbn in H2. destruct (same w x); congruence.
  - (* Add *)
    exists h, r, arrivals, reloads, seen, far, paid, (remove same w debt).
    destruct s as [f ct m]. cbn [step fast] in *.
    apply (window_quiet _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ W); cbn [step fast content saved]; trivial.
    + intros x Hx. split; [ exact Hx | ]. unfold relevant in *. cbn [useful].
      destruct (hub x), (input x), (same w x); auto.
    + auto.
    + split; intros x t; cbn [useful step content saved];
        (destruct (same w x) as [-> | N];
         [ rewrite upd_same, in_app_iff | rewrite upd_other by exact N ]); tauto.
    + apply incl_refl.
    + pose proof (remove_length same w debt ND). lia.
    + now apply remove_NoDup.
    + intros x Hx. apply in_remove in Hx as [Hx Hxw]. destruct (HD x Hx) as [H1 H2].
      split; [ exact H1 | ]. cbn in H2. destruct (same w x); congruence.
  - (* Drop *)
    exists h, r, arrivals, reloads, seen, far, paid, debt.
    destruct s as [f ct m]. cbn [step fast content] in *.
    assert (Hu : forall x, x <> w -> useful x (Drop w :: es) = useful x es).
    { intros x Hx. cbn. destruct (same w x); congruence. }
    apply (window_quiet _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ W); cbn [step fast content saved]; trivial.
    + now apply remove_NoDup.
    + intros x Hx Hr. apply in_remove in Hx as [Hx Hxw]. split; [ exact Hx | ].
      now rewrite (relevant_other _ _ w).
    + intros b t Hh. destruct (same w b) as [-> | N].
      * rewrite upd_same. intros [].
      * rewrite upd_other by exact N. intros H. right. split; [ exact H | ].
        intros Hf. apply in_in_remove; auto.
    + split; intros x t; cbn [step content saved];
        (destruct (same w x) as [-> | N]; [ rewrite upd_same; cbn; tauto | ]);
        rewrite upd_other by exact N; [ rewrite Hu by congruence | ]; tauto.
    + apply incl_refl.
    + lia.
    + intros x Hx. destruct (HD x Hx) as [H1 H2].
      assert (Hxw : x <> w).
      { intros ->. cbn in H2. destruct (same w w); congruence. }
      split; [ apply in_in_remove; auto | now rewrite <- Hu ].
  - (* Do *)
    destruct He as [Hn Hr]. exists h, r, arrivals, reloads, seen, far, paid, debt.
    assert (Ef : fast (step s (Do t)) = fast s) by now destruct s.
    assert (Em : saved (step s (Do t)) = saved s) by now destruct s.
    assert (Fs : forall x, In x (needs t) -> relevant es x = true -> In x seen).
    { intros x Hx Hx'. apply (w_fast _ _ _ _ _ _ _ _ _ _ _ W); [ now apply Hn | exact Hx' ]. }
    assert (Fi : forall x, In x (needs t) -> input x = true -> In x seen).
    { intros x Hx Hi. apply Fs; [ exact Hx | ]. unfold relevant. rewrite Hi.
      destruct (hub x) eqn:Hh; [ apply hubs_made in Hh; congruence | reflexivity ]. }
    assert (Ec : forall x t', In t' (content (step s (Do t)) x) ->
      In t' (content s x) \/ (t' = t /\ In x (outs t))).
    { intros x t'. destruct s as [f ct m]. cbn [step content]. unfold absorb.
      destruct (in_dec (word_dec X) x (outs t)) as [Ho | Ho]; [ | auto ].
      intros [-> | H]; auto. }
    destruct W as [C Sp' De S F Z Me P Hb Hm Ab]. rewrite Nat.add_0_r.
    split; rewrite ?Ef, ?Em; trivial.
    + (* hubs *)
      intros b t' Hh H. destruct (Ec b t' H) as [H' | [-> Ho]]; [ auto | right ].
      split; [ apply Hn; now apply outs_needed | exact Fi ].
    + (* what hubs have absorbed has met *)
      intros b t' Hh [H | H]; [ | apply (Hm b t' Hh); now right ].
      destruct (Ec b t' H) as [H' | [-> Ho]]; [ apply (Hm b t' Hh); now left | ].
      intros x y Hx Hy N Ix Iy. apply Me; auto.
    + (* absorbed tasks *)
      intros w t' Hw H. destruct H as [[H Hu] | H]; [ | auto ].
      destruct (Ec w t' H) as [H' | [-> Ho]]; [ auto | ].
      assert (So : forall x, In x (needs t) -> input x = true \/ x = w -> In x seen).
      { intros x Hx [Hi | ->]; [ auto | ].
        apply Fs; [ now apply outs_needed | ]. unfold relevant. rewrite Hw. destruct (input w); trivial. }
      destruct (in_dec same (hub_of t) far) as [Hf | Hf]; [ left; split; [ exact Hf | split ] | right ].
      * intros x y Hx Hy N Ix Iy. apply Me; auto.
      * intros t' Ht'. destruct (deps_ready t _ Hr t' Ht') as [Hh Hc]. apply (Hm _ _ Hh). now left.
      * assert (Si : forall x, In x (flat_map needs (t :: deps t)) -> input x = true \/ x = w -> In x seen).
        { intros x Hx Ix. apply in_flat_map in Hx as (t' & [<- | Ht'] & Hx); [ auto | ].
          destruct Ix as [Hi | ->]; [ | apply So; [ now apply outs_needed | now right ] ].
          destruct (deps_ready t _ Hr t' Ht') as [Hh Hc].
          destruct (Hb _ _ Hh Hc) as [? | [_ Hs]]; [ contradiction | auto ]. }
        intros x y Hx Hy N Ix Iy. apply Me; auto.
Qed.

Lemma window_run es : forall s h r arrivals reloads spent seen far paid debt,
  window s es h r arrivals reloads spent seen far paid debt -> valid M s es ->
  exists h' r' arrivals' reloads' seen' far' paid' debt',
    window (run s es) [] h' r' arrivals' reloads' (spent + traffic es) seen' far' paid' debt'.
Proof.
  induction es as [| e es IH]; intros s h r ar rl spent seen far paid debt W V.
  - exists h, r, ar, rl, seen, far, paid, debt. cbn. now rewrite Nat.add_0_r.
  - destruct V as (He & HM & V).
    destruct (window_step _ _ _ _ _ _ _ _ _ _ _ _ W He HM)
      as (h1 & r1 & a1 & l1 & s1 & f1 & p1 & d1 & W1).
    destruct (IH _ _ _ _ _ _ _ _ _ _ W1 V) as (h2 & r2 & a2 & l2 & s2 & f2 & p2 & d2 & W2).
    exists h2, r2, a2, l2, s2, f2, p2, d2. unfold traffic in *. cbn [total].
    now rewrite Nat.add_assoc.
Qed.

Lemma met_by_task_apart paid t w : met_by_task paid t w -> met_apart paid t w.
Proof.
  intros H. assert (D : forall t' x, In t' (t :: deps t) -> In x (needs t') ->
    In x (flat_map needs (t :: deps t))) by (intros t' x Ht Hx; apply in_flat_map; eauto).
  split.
  - intros x y Hx Hy N Ix Iy. apply H; trivial; apply (D t); trivial; now left.
  - intros t' Ht' x y Hx Hy N Ix Iy. apply H; auto; apply (D t'); trivial; now right.
Qed.

Theorem window_meeting es : valid M (init X) es ->
  exists arrivals reloads (far : list word) (paid : list (word * word)),
    length paid + lambda * length far
      <= (M + L - 1) * arrivals + lambda * reloads + lambda * M /\
    arrivals + reloads <= traffic es /\
    forall w t, hub w = false -> In t (saved (run (init X) es) w) ->
      (In (hub_of t) far /\ met_apart paid t w) \/ met_by_task paid t w.
Proof.
  intros V. destruct (window_run es (init X) 0 0 0 0 0 [] [] [] [])
    as (h & r & ar & rl & seen & far & paid & debt & W); trivial.
  { split; cbn; try contradiction; try (split; [ lia | constructor ]);
      try (split; [ constructor | ]); try lia; tauto. }
  cbn [Nat.add] in W. destruct W as [[C1 C2] Sp [_ De] _ _ _ _ P _ _ Ab].
  exists ar, rl, far, paid. split; [ | split ].
  - assert (lambda * h <= lambda * M) by (apply Nat.mul_le_mono_l; exact C2). lia.
  - destruct debt as [| w debt]; [ cbn in Sp; lia | ].
    destruct (De w (or_introl eq_refl)) as [_ H]. discriminate H.
  - intros w t Hw H. apply Ab; auto.
Qed.
End Windows.

(* The arithmetic of windows.  The visible pairs vis want full word pairs each, all of
   their own, and those that were given up have apart of them; giving one up costs
   lambda = full - apart, and takes a hub of its own. *)
Lemma window_count {A P : Type} (left_side : A -> bool) (owner : A * A -> P)
    (full apart : P -> list (A * A)) (lost : P -> bool) (n m M L : nat) (vis : list P)
    (paid : list (A * A)) far arrivals reloads total :
  0 < M -> n <= m + L -> NoDup vis ->
  (forall p, NoDup (full p) /\ length (full p) = n) ->
  (forall p, NoDup (apart p) /\ length (apart p) = m) ->
  (forall p x y, In (x, y) (full p ++ apart p) ->
     left_side x = true /\ left_side y = false /\ owner (x, y) = p) ->
  (forall p x y, In p vis -> In (x, y) (if lost p then apart p else full p) -> met paid x y) ->
  length (filter lost vis) <= far ->
  length paid + (n - m) * far <= (M + L - 1) * arrivals + (n - m) * reloads + (n - m) * M ->
  arrivals + reloads <= total ->
  length vis * n <= (M + L - 1) * total + (n - m) * M.
Proof.
  intros HM0 HL Hv Hf Ha Ho Hm Hg P1 T.
  assert (C : length (flat_map (fun p => if lost p then apart p else full p) vis) <= length paid).
  { apply (count_all left_side owner); trivial.
    - intros p. destruct (lost p); [ apply Ha | apply Hf ].
    - intros p x y H. apply Ho. apply in_or_app. destruct (lost p); auto. }
  assert (E : length vis * n
    <= length (flat_map (fun p => if lost p then apart p else full p) vis)
       + (n - m) * length (filter lost vis)).
  { clear - Hf Ha. induction vis as [| p l IH]; cbn; [ lia | ].
    rewrite app_length. destruct (Hf p) as [_ E1], (Ha p) as [_ E2].
    destruct (lost p); cbn; rewrite ?E1, ?E2; lia. }
  apply (Nat.mul_le_mono_l _ _ (n - m)) in Hg.
  assert ((n - m) * reloads <= (M + L - 1) * reloads) by (apply Nat.mul_le_mono_r; lia).
  apply (Nat.mul_le_mono_l _ _ (M + L - 1)) in T. lia.
Qed.
